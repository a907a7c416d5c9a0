"""Load a function or a class that an option names: ``mine.py:create``, or ``package.module:create``.

Loading runs the file, as ``python mine.py`` would: name only code that you trust.
"""

from __future__ import annotations

import hashlib
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

_FORMS = "mine.py:{name} or package.module:{name}"
_loaded: dict[tuple[Path, str], ModuleType] = {}


@dataclass(frozen=True)
class Code:
    """A function or a class, how it was named, and the file that holds it, None where there is none."""

    spec: str
    value: Any
    file: Path | None

    @property
    def digest(self) -> str | None:
        """The SHA-256 of the file, in hex; None where there is none."""
        return None if self.file is None else hashlib.sha256(self.file.read_bytes()).hexdigest()


def load_code(spec: str, option: str, what: str, example: str) -> Code:
    """Run a Python file, or import a module, and return the function or class that ``option`` names in it.

    ``spec`` is ``mine.py:create``, with a path to the file, or ``package.module:create``, installed or in the working
    folder. Errors say ``what`` is expected, as "class", and show an ``example`` of a name.
    """
    source, _, name = spec.rpartition(":")
    if not source or not name:
        raise ValueError(f"{option} {spec!r} names no {what}: expected {_FORMS.format(name=example)}")
    module = _run_file(spec, option, Path(source)) if source.endswith(".py") else _import(spec, option, source)
    value = getattr(module, name, None)
    if not callable(value):
        names = _names_in(module)
        raise ValueError(  # noqa: TRY004 - an invalid option
            f"{option} {spec!r}: {source} has no {what} {name!r}; it has {', '.join(names) or 'none at all'}"
        )
    file = getattr(module, "__file__", None)
    return Code(spec, value, None if file is None else Path(file))


def _run_file(spec: str, option: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"{option} {spec!r}: there is no file {str(path)!r}: give its path from the working folder")
    key = path.resolve(), hashlib.sha256(path.read_bytes()).hexdigest()
    if key not in _loaded:
        # Classes are found by the name of their module; a module of another file keeps its own.
        name = path.stem if path.stem not in sys.modules else f"{path.stem}_{key[1][:12]}"
        origin = spec_from_file_location(name, key[0])
        assert origin is not None  # noqa: S101 - it is None for suffixes that are not Python's
        assert origin.loader is not None  # noqa: S101
        module = module_from_spec(origin)
        sys.modules[name] = module
        try:
            with _importable(key[0].parent, Path.cwd()), _reporting(spec, option, f"running {path}"):
                origin.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        _loaded[key] = module
    return _loaded[key]


def _import(spec: str, option: str, name: str) -> ModuleType:
    with _importable(Path.cwd()), _reporting(spec, option, f"importing {name}"):
        return import_module(name)


@contextmanager
def _importable(*folders: Path) -> Iterator[None]:
    before = list(sys.path)
    sys.path[:0] = map(str, folders)
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def _reporting(spec: str, option: str, what: str) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        fix = ". Install the package, or run in the folder of the module" if isinstance(error, ImportError) else ""
        reason = f"{type(error).__name__}: {str(error).rstrip('.')}"
        raise ValueError(f"{option} {spec!r}: {what} failed with {reason}{fix}") from error


def _names_in(module: ModuleType) -> Sequence[str]:
    """Return the names of functions and classes that a module defines itself, ten at most."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return [name for name in own if callable(getattr(module, name)) and not name.startswith("_")][:10]
