"""Code that an experiment names by its import path, `package.module:name`: whether it may run, and what it is.

To import a file is to run it. What a user's own experiment names is imported. What a run folder or an export names may
have been written by a stranger: it is imported where this user made that folder here (`made_here.py`), from the same
files as then, or where the user says so. The decision is a `Trust`, which travels with the experiment, also to workers.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from manyheads.config.messages import nearest
from manyheads.errors import ConfigurationError, RunError

Files = tuple[str, ...]  # that importing a module runs: of the packages that it lies in, then its own
Code = dict[str, Files]  # by the name under which an experiment asks for it


@dataclass(frozen=True)
class Trust:
    """Whose word it is that names code, and which code that may be."""

    folder: str = "nobody knows whose this is"  # the run folder or export that names it
    known: Mapping[str, Files] | None = field(default_factory=dict)  # None: the user names it, it may be anything
    said: bool = False  # the user said --trust-code
    own: Code = field(default_factory=dict, compare=False)  # what was imported without that word

    @classmethod
    def in_user(cls) -> "Trust":
        """What a user's own experiment names."""
        return cls(known=None)

    def check(self, name: str, key: str, files: Files) -> None:
        """Raise where code from these files must not be imported."""
        if self.known is None or (files and self.known.get(name) == files):
            self.own[name] = files
        elif not files and not self.said:  # to look further, packages would have to be imported
            raise ConfigurationError(f'{key} = "{name}": cannot be imported: there is no such module')
        elif not self.said:
            then = self.known.get(name)
            why = f"you made this folder with {then[-1]}" if then else "you did not make this folder here"
            raise RunError(
                f'{self.folder}: {key} = "{name}" would import {", ".join(files)}, and {why}; read that code first, '
                "then say --trust-code (in Python: trust_code=True)"
            )


def find(name: str, key: str, fits: Callable[[Any], bool], what: str, trust: Trust) -> Any:
    """Return what `package.module:name` stands for, where it may be imported and `fits`.

    Args:
        name: the import path, as the experiment gives it.
        key: where the experiment gives it, such as `model.backbone`.
        fits: whether something is of the kind that is needed; nothing else is ever called.
        what: that kind, in words.
        trust: whose word it is that names the code.
    """
    module, _, attribute = name.partition(":")
    said = f'{key} = "{name}"'
    files = files_of(module)
    if _is_python_s_own(module, files):
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
    except ConfigurationError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's file raises when it is read
        raise ConfigurationError(f"{said}: cannot be imported: {first_line(error)}") from None
    if not fits(found):
        kind = f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"
        raise ConfigurationError(f"{said}: is {kind}; needed: {what}")
    return found


def files_of(module: str) -> Files:
    """Return the files that importing a module would run; none where it is not found. Nothing is imported for that.

    It is looked for where Python does, and then in the working folder.
    """
    return _files(module, None) or _files(module, [*sys.path, os.getcwd()])


def _files(module: str, path: list[str] | None) -> Files:
    """As `files_of`. `importlib.util.find_spec("a.b")` would import a."""
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
    """Where a module came from that was imported already: to import it again runs nothing."""
    module = sys.modules.get(name)
    if module is None:
        return None
    spec: ModuleSpec | None = getattr(module, "__spec__", None)
    if spec is None:  # the program itself, or a session
        spec = ModuleSpec(name, None, origin=getattr(module, "__file__", None) or "what was typed in")
    return spec


def _spec(part: str, path: list[str] | None) -> ModuleSpec | None:
    """Below a path, or where all finders of Python look. Its last name is enough for that, and asks for no parent."""
    if path is not None:
        return PathFinder.find_spec(part, path)
    specs = (finder.find_spec(part, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next((spec for spec in specs if spec is not None), None)


def _is_python_s_own(module: str, files: Files) -> bool:
    """No model and no algorithm lies in the standard library; `http.server:test` would serve the working folder."""
    library = os.path.realpath(os.path.dirname(os.__file__))
    within = bool(files) and (not os.path.isabs(files[0]) or os.path.commonpath([files[0], library]) == library)
    return within and module.partition(".")[0] in sys.stdlib_module_names


def first_line(error: BaseException) -> str:
    """What was raised, and the last place outside torch, importlib and this package that it came through."""
    text = str(error).strip()
    said = f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
    others = [sys.modules[name].__file__ for name in ("torch", "importlib", "manyheads") if name in sys.modules]
    skipped = (*(os.path.dirname(file) + os.sep for file in others if file), "<")
    places = [p for p in traceback.extract_tb(error.__traceback__) if not p.filename.startswith(skipped)]
    return f"{said} ({os.path.basename(places[-1].filename)}, line {places[-1].lineno})" if places else said
