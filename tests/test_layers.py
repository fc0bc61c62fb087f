"""A file imports only what stands above it in the tree of docs/architecture.md."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "manyheads"


def order() -> list[str]:
    """Top-level names in the order in which the architecture page lists them."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    tree = re.search(r"```\nsrc/manyheads/\n(.*?)```", page, re.DOTALL)
    assert tree, "docs/architecture.md has lost its tree"
    names = re.findall(r"^  ([a-z_]+)(?:\.py|/)", tree.group(1), re.MULTILINE)
    assert len(names) == len(set(names))
    return names


def imports(path: Path) -> set[str]:
    """The parts of manyheads that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [
                f"{node.module}.{alias.name}" if node.module == "manyheads" else str(node.module)
                for alias in node.names
            ]
        found |= {name.split(".")[1] for name in names if name.startswith("manyheads.")}
    return found


FILES = sorted(
    path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem not in ("__init__", "__main__")
)


def test_the_page_lists_exactly_what_is_there() -> None:
    there = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in FILES}
    assert set(order()) == there


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_imports_only_what_stands_above_it(path: Path) -> None:
    names = order()
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    allowed = set(names[: names.index(own) + 1])
    assert imports(path) <= allowed


def test_reports_see_run_folders_only() -> None:
    for path in (SOURCE / "report").glob("*.py"):
        assert imports(path) <= {"report", "runs", "errors", "files"}
