"""Import code that an experiment names by its path, `package.module:name`, if that may run.

To import a file is to run it. Code that a user's own experiment names is imported. Code that a run folder or an export
names may be a stranger's: it is imported if this user made that folder here (`provenance.py`), from the same files as
then, or if the user says so. The decision is a `Trust`, which travels with the experiment, also to workers.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from manyheads.config.messages import nearest
from manyheads.errors import ConfigurationError, RunError

Files = tuple[str, ...]  # all that importing a module runs: the files of its packages, then its own
Code = dict[str, Files]  # by the import path that an experiment gives; also what it fetches, by its key


@dataclass(frozen=True)
class Trust:
    """The decision which code may be imported, given who named it."""

    folder: str = "unknown origin"  # the run folder or export that names the code
    known: Mapping[str, Files] | None = field(default_factory=dict)  # None: the user names it, so it may be any
    trust_code: bool = False  # the user said --trust-code
    imported: Code = field(default_factory=dict, compare=False)  # what was allowed without --trust-code

    @classmethod
    def full(cls) -> "Trust":
        """Return the trust in code that the user's own experiment names: any."""
        return cls(known=None)

    def check(self, name: str, key: str, files: Files) -> None:
        """Raise if code from these files must not be imported."""
        if self.known is None or (files and self.known.get(name) == files):
            self.imported[name] = files
        elif not files and not self.trust_code:  # to look further, packages would have to be imported
            raise ConfigurationError(f'{key} = "{name}": cannot be imported: there is no such module')
        elif not self.trust_code:
            then = self.known.get(name)
            why = f"you made this folder with {then[-1]}" if then else "you did not make this folder here"
            raise RunError(
                f'{self.folder}: {key} = "{name}" would import {", ".join(files)}, and {why}; read that code first, '
                "then say --trust-code (in Python: trust_code=True)"
            )

    def check_download(self, key: str, what: str) -> None:
        """Raise if an experiment must not fetch data: a stranger's may name any, and fill the disk with them."""
        said = f"{key} = true"
        if self.known is None or self.known.get(said) == (what,):
            self.imported[said] = (what,)
        elif not self.trust_code:
            raise RunError(
                f"{self.folder}: {said} would fetch {what}, and you did not make this folder here; to allow that, say "
                "--trust-code (in Python: trust_code=True)"
            )


def import_named(name: str, key: str, fits: Callable[[Any], bool], what: str, trust: Trust) -> Any:
    """Return the object that `package.module:name` names, if it may be imported and `fits`.

    Args:
        name: the import path, as the experiment gives it.
        key: where the experiment gives it, such as `model.backbone`.
        fits: tells whether an object is of the kind that is needed; others are never called.
        what: that kind, in words.
        trust: which code may be imported.
    """
    module, _, attribute = name.partition(":")
    said = f'{key} = "{name}"'
    files = files_of(module)
    if _in_standard_library(module, files):
        raise ConfigurationError(f"{said}: {module} is a part of Python itself; needed: {what}")
    trust.check(name, key, files)
    try:
        if files and not _files(module, None):
            sys.path.append(os.getcwd())
        imported = importlib.import_module(module)
        if not hasattr(imported, attribute):
            public = [key for key in vars(imported) if not key.startswith("_")]
            raise ConfigurationError(f"{said}: {module} has no {attribute}; {nearest(attribute, public)}")
        found: Any = getattr(imported, attribute)
    except (ConfigurationError, KeyboardInterrupt):
        raise
    except BaseException as error:  # whatever the user's file raises when it is read
        raise ConfigurationError(f"{said}: cannot be imported: {describe_error(error)}") from None
    if not fits(found):
        kind = f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"
        raise ConfigurationError(f"{said}: is {kind}; needed: {what}")
    return found


def import_library(name: str) -> ModuleType:
    """Import a library that only some users need, from where libraries are installed.

    It may be a stranger's folder that asks for it, and a file of that name beside that folder must not be run: so
    nothing is searched for in the working folder, nor in that of the program.
    """
    program = getattr(sys.modules.get("__main__"), "__file__", None) or "."
    near = {os.path.realpath("."), os.path.dirname(os.path.realpath(program))}
    before = list(sys.path)
    sys.path[:] = [place for place in before if os.path.realpath(place or ".") not in near]
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = before + [place for place in sys.path if place not in before]


def files_of(module: str) -> Files:
    """Return the files that importing a module would run, without importing anything; none if it is not found.

    The search goes through Python's path, then the working folder.
    """
    return _files(module, None) or _files(module, [*sys.path, os.getcwd()])


def _files(module: str, path: list[str] | None) -> Files:
    """Return the files of a module below a path; `importlib.util.find_spec("a.b")` would import a."""
    files: list[str] = []
    within = ""
    for number, part in enumerate(module.split(".")):
        if not part.isidentifier() or (number > 0 and path is None):
            return ()
        spec = _loaded(f"{within}{part}") or _spec(part, path)
        if spec is None:
            return ()
        if spec.origin is not None:  # of a folder without __init__.py nothing is run
            files.append(os.path.realpath(spec.origin) if spec.has_location else spec.origin)
        path = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
        within += f"{part}."
    return tuple(files)


def _loaded(name: str) -> ModuleSpec | None:
    """Return the origin of a module that is imported already: to import it again runs nothing."""
    module = sys.modules.get(name)
    if module is None:
        return None
    spec: ModuleSpec | None = getattr(module, "__spec__", None)
    if spec is None:  # the program itself, or a session
        spec = ModuleSpec(name, None, origin=getattr(module, "__file__", None) or "what was typed in")
    return spec


def _spec(part: str, path: list[str] | None) -> ModuleSpec | None:
    """Find a module by its last name, which needs no parent, below a path or with all of Python's finders."""
    if path is not None:
        return PathFinder.find_spec(part, path)
    specs = (finder.find_spec(part, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec for spec in specs if spec is not None), None)


def _in_standard_library(module: str, files: Files) -> bool:
    """Tell whether a module is Python's own: none holds a model, and `http.server:test` would serve this folder."""
    library = os.path.realpath(os.path.dirname(os.__file__))
    within = bool(files) and (not os.path.isabs(files[0]) or os.path.commonpath([files[0], library]) == library)
    return within and module.partition(".")[0] in sys.stdlib_module_names


def describe_error(error: BaseException) -> str:
    """Return an error in one line, with the last place outside torch, importlib and this package."""
    text = str(error).strip()
    said = f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
    others = [sys.modules[name].__file__ for name in ("torch", "importlib", "manyheads") if name in sys.modules]
    skipped = (*(os.path.dirname(file) + os.sep for file in others if file), "<")
    places = [p for p in traceback.extract_tb(error.__traceback__) if not p.filename.startswith(skipped)]
    return f"{said} ({os.path.basename(places[-1].filename)}, line {places[-1].lineno})" if places else said
