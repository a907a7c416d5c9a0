"""Optional dependencies: imported when used, and named with their install line when missing."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def require(module: str, *, extra: str, what: str) -> Any:
    """Import ``module``, or say which extra of pnml brings it."""
    try:
        return import_module(module)
    except ImportError as error:
        missing = error.name or module
        raise ImportError(
            f"{what} needs {missing!r}, which is not installed: pip install 'pnml[{extra}]'", name=missing
        ) from error


def is_installed(module: str) -> bool:
    """Return whether a top-level module can be found, without importing it."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: a stand-in without a specification
        return False
