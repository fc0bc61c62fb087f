"""The code that decides numbers, as a hash."""

import hashlib
import io
import tokenize
from ast import ClassDef, Constant, Expr, FunctionDef, Import, ImportFrom, Module, parse, walk
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

# Everything between a configuration and an accuracy is what training imports, directly or not.
ROOT = "manyheads.training.start"
NOT_ABOUT_NUMBERS = ("manyheads", "manyheads.version")  # public names and the version decide no number
# Versions that give the same numbers, the oldest first: only speed or form changed between them, as the named tests
# show. If today's version is not among them, only results that it made itself are valid.
SAME_NUMBERS = (
    (
        "a21fdd104e03cd68",
        "1e093aec37ecb2fe",  # dropout's kernel: tests/models/test_dropout.py
        "23eec4ebcf488ca5",  # batches of several stretches are drawn together: tests/engine/test_cuda.py
        "b96dea94f88df076",  # what would be sent stays on the GPU: tests/exchange
        "adcb90450e8a45b1",  # how often is saved; form of sgd and teachers: tests/golden; tests/engine/test_cuda.py
        "f8817fcf676103f5",  # notes on keys without effect: tests/golden
        "ac85968d7129e7ee",  # pooling's kernel: tests/models/test_same_pool.py
        "854d3a2153b5dc22",  # heads may see feature maps: tests/golden; shortcuts below 16 channels, which no cell has
        "8a489e6d3129e6bd",  # runs.py and summary.py count, too; a checkpoint knows the keys of its file: tests/golden
        "ce75a44fe01b5ec4",  # rooms; one exchange; the code is found from imports: tests/golden
        "c7de97682a096460",  # balance, pull, mixture; no cell has them: tests/golden; tests/runs/test_before_balance.py
        "bd71a49db5d69f08",  # the ramp of the pull, own statistics; no printed cell has them: tests/golden
        "0fea7f956e6f0da9",  # own labels for all heads; no printed cell has them: tests/golden
        "cac37b8c4fb0556c",  # names: tests/golden
    ),
)


@cache
def code_of_numbers() -> str:
    """Return a hash of the code that decides numbers; comments, docstrings and empty lines are not part of it."""
    found = hashlib.sha256()
    for name, text in sorted(code_that_decides_numbers().items()):
        found.update(f"{name}\n{without_comments(text)}".encode())
    return found.hexdigest()[:16]


def code_that_decides_numbers() -> dict[str, str]:
    """Return the source of every module that training imports, indirect imports included."""
    found: dict[str, str] = {}
    due = [ROOT]
    while due:
        name = due.pop()
        if name in found or name in NOT_ABOUT_NUMBERS or (place := _source(name)) is None:
            continue
        found[name] = place.read_text(encoding="utf-8")
        due += [name.rpartition(".")[0], *imports_of(found[name])]
    return found


def imports_of(source: str) -> set[str]:
    """Return what a module imports from this package: both `a.b` and `a.b.c` for `from a.b import c`."""
    found = set()
    for node in walk(parse(source)):
        if isinstance(node, Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.partition(".")[0] == "manyheads"}


def _source(name: str) -> Traversable | None:
    """Return the file of a module; None if the name is something inside a module."""
    package, parts = files("manyheads"), name.split(".")[1:]
    options = (package.joinpath(*parts, "__init__.py"), package.joinpath(*parts[:-1], f"{parts[-1]}.py"))
    return next((option for option in options if option.is_file()), None)


def oldest_equivalent(code: str) -> str:
    """Return the oldest version that gives the same numbers."""
    return next((versions[0] for versions in SAME_NUMBERS if code in versions), code)


def same_numbers(code: str) -> bool:
    """Return whether today's code gives the same numbers as this code."""
    return oldest_equivalent(code) == oldest_equivalent(code_of_numbers())


def without_comments(source: str) -> str:
    """Return source code without comments, docstrings and empty lines; the same in every version of Python."""
    lines = source.split("\n")
    for node in walk(parse(source)):
        first = node.body[0] if isinstance(node, Module | ClassDef | FunctionDef) and node.body else None
        if isinstance(first, Expr) and isinstance(first.value, Constant) and isinstance(first.value.value, str):
            assert first.end_lineno is not None
            lines[first.lineno - 1 : first.end_lineno] = [""] * (first.end_lineno - first.lineno + 1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        row, column = token.start
        if token.type == tokenize.COMMENT and lines[row - 1]:
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines if line.strip())


if __name__ == "__main__":
    print(code_of_numbers())
