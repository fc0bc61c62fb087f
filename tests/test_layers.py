"""A file imports only what stands above its room in the tree of docs/architecture.md."""

import ast
import re
from pathlib import Path

import pytest

from manyheads.studies.paper.code_of_numbers import imports_of

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "manyheads"
TORCH_FREE = ("report", "runs.read", "config", "errors", "files", "version", "engine.options", "console", "cli")
HEAVY = ("torch", "safetensors", "sklearn", "matplotlib", "networkx", "PIL", "pandas")


def order() -> list[str]:
    """Top-level names in the order in which the architecture page lists them."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    tree = re.search(r"```\nsrc/manyheads/\n(.*?)```", page, re.DOTALL)
    assert tree, "docs/architecture.md has lost its tree"
    names = re.findall(r"^  ([a-z_]+)(?:\.py|/)", tree.group(1), re.MULTILINE)
    assert len(names) == len(set(names))
    return names


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}
INSIDE = {name: path for name, path in FILES.items() if name not in ("manyheads", "manyheads.__main__")}
IMPORTS = {name: imports_of(path.read_text()) & FILES.keys() for name, path in FILES.items()}


def room(module: str) -> str:
    return module.split(".")[1]


def at_import(path: Path) -> set[str]:
    """Return the imports that run when the module is imported, without those in its functions."""
    found: set[str] = set()
    due: list[ast.AST] = [ast.parse(path.read_text())]
    while due:
        node = due.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        lazy = isinstance(node, ast.FunctionDef) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        )
        due += [] if lazy else list(ast.iter_child_nodes(node))
    return found


def reached(module: str) -> set[str]:
    """All that importing a module imports, also by way of others; packages import their `__init__`."""
    found: set[str] = set()
    due = [module]
    while due:
        name = due.pop()
        if name in found:
            continue
        found.add(name)
        if name in FILES:
            due += [name.rpartition(".")[0], *at_import(FILES[name])]
    return found


def test_the_page_lists_exactly_what_is_there() -> None:
    assert set(order()) == {room(module) for module in INSIDE}


@pytest.mark.parametrize("module", INSIDE)
def test_a_file_imports_only_what_stands_above_it(module: str) -> None:
    names = order()
    allowed = set(names[: names.index(room(module)) + 1])
    assert {room(other) for other in IMPORTS[module] - {"manyheads"}} <= allowed


def test_no_module_imports_itself_by_way_of_others() -> None:
    above: dict[str, set[str]] = {}

    def walk(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"a cycle: {' -> '.join([*path, module])}"
        if module in above:
            return
        for other in IMPORTS[module] - {"manyheads", module}:
            if not module.startswith(f"{other}."):  # its own package is there already
                walk(other, (*path, module))
        above[module] = IMPORTS[module]

    for module in INSIDE:
        walk(module, ())


def test_reports_see_run_folders_only() -> None:
    for module in INSIDE:
        if room(module) == "report":
            assert {room(other) for other in IMPORTS[module]} <= {"report", "runs", "errors", "files", "printable"}


@pytest.mark.parametrize("start", TORCH_FREE)
def test_who_needs_no_torch(start: str) -> None:
    modules = [name for name in INSIDE if f"{name}.".startswith(f"manyheads.{start}.")]
    assert modules
    for module in modules:
        heavy = {name for name in reached(module) if name.partition(".")[0] in ("torch", "safetensors")}
        assert not heavy, f"{module} reaches {sorted(heavy)}"


@pytest.mark.parametrize("start", ["cli", "console", "engine.options", "config"])
def test_what_answers_a_mistake_imports_nothing_heavy(start: str) -> None:
    for module in (name for name in INSIDE if f"{name}.".startswith(f"manyheads.{start}.")):
        heavy = {name for name in reached(module) if name.partition(".")[0] in HEAVY}
        assert not heavy, f"{module} reaches {sorted(heavy)}"


ROOMS = sorted(path.parent for path in SOURCE.rglob("__init__.py"))


@pytest.mark.parametrize("folder", ROOMS, ids=lambda room: str(room.relative_to(SOURCE)))
def test_files_that_a_room_speaks_of_are_there(folder: Path) -> None:
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = re.findall(r"[a-z_/]+\.py\b|[a-z_]+/(?=[\s);,:])", docstring)
    assert [name for name in named if not any((place / name).exists() for place in (folder, SOURCE, ROOT))] == []
