"""Know when a classifier's answer cannot be trusted, by the pNML regret (Bibas, Feder, Hassner, NeurIPS 2021)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pnml._version import __version__
from pnml.backend.extras import is_installed, require
from pnml.core.calibration import Threshold
from pnml.core.correlation import Correlation
from pnml.core.detector import Detector
from pnml.core.monitor import Monitor
from pnml.core.result import Result
from pnml.core.selection import select
from pnml.core.single_layer import SingleLayer
from pnml.core.subspace import Subspace
from pnml.core.theorem import genie, predictive, regret

if TYPE_CHECKING:
    from pnml.integrations.sklearn import PNMLClassifier as PNMLClassifier
    from pnml.integrations.sklearn import PNMLOutlierDetector as PNMLOutlierDetector
    from pnml.pytorch.export import export_onnx as export_onnx
    from pnml.pytorch.guard import Guard as Guard
    from pnml.pytorch.guard import guard as guard

_NEEDS_EXTRA = {  # name: its module, the extra that brings all it needs, the library that its module imports
    "Guard": ("pnml.pytorch.guard", "torch", "torch"),
    "guard": ("pnml.pytorch.guard", "torch", "torch"),
    "export_onnx": ("pnml.pytorch.export", "onnx", "torch"),
    "PNMLClassifier": ("pnml.integrations.sklearn", "sklearn", "sklearn"),
    "PNMLOutlierDetector": ("pnml.integrations.sklearn", "sklearn", "sklearn"),
}
_MODULES = ("metrics", "report")  # imported when first used

__all__ = [
    "Correlation",
    "Detector",
    "Monitor",
    "Result",
    "SingleLayer",
    "Subspace",
    "Threshold",
    "__version__",
    "genie",
    "metrics",
    "predictive",
    "regret",
    "report",
    "select",
]
# `from pnml import *` gives what this install can import.
__all__ += [name for name, (*_, library) in _NEEDS_EXTRA.items() if is_installed(library)]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"pnml.{name}")
    if name not in _NEEDS_EXTRA:
        raise AttributeError(f"module 'pnml' has no attribute {name!r}")
    module, extra, _ = _NEEDS_EXTRA[name]
    return getattr(require(module, extra=extra, what=f"pnml.{name}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_NEEDS_EXTRA})
