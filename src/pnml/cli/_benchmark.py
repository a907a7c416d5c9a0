"""The commands of the benchmark, where it is installed: the one place where ``pnml`` looks for ``pnml_bench``."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def benchmark() -> ModuleType | None:
    """Return ``pnml_bench.cli.commands``, None where the benchmark is not installed."""
    if find_spec("pnml_bench") is None:
        return None
    return import_module("pnml_bench.cli.commands")
