"""Know when a classifier's answer cannot be trusted, by the pNML regret (Bibas, Feder, Hassner, NeurIPS 2021)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pnml._version import __version__
from pnml.backend.extras import is_installed, require

if TYPE_CHECKING:
    from pnml.core.calibration import Threshold as Threshold
    from pnml.core.correlation import Correlation as Correlation
    from pnml.core.detector import Detector as Detector
    from pnml.core.monitor import Monitor as Monitor
    from pnml.core.result import Result as Result
    from pnml.core.selection import select as select
    from pnml.core.single_layer import SingleLayer as SingleLayer
    from pnml.core.subspace import Subspace as Subspace
    from pnml.core.theorem import genie as genie
    from pnml.core.theorem import predictive as predictive
    from pnml.core.theorem import regret as regret
    from pnml.integrations.sklearn import PNMLClassifier as PNMLClassifier
    from pnml.integrations.sklearn import PNMLOutlierDetector as PNMLOutlierDetector
    from pnml.pytorch.export import export_onnx as export_onnx
    from pnml.pytorch.guard import Guard as Guard
    from pnml.pytorch.guard import guard as guard

# Names are imported when they are first used: Ctrl-C finds the command line ready for it, and no library is loaded
# that nobody asked for.
_MODULES = {
    "Correlation": "pnml.core.correlation",
    "Detector": "pnml.core.detector",
    "Monitor": "pnml.core.monitor",
    "Result": "pnml.core.result",
    "SingleLayer": "pnml.core.single_layer",
    "Subspace": "pnml.core.subspace",
    "Threshold": "pnml.core.calibration",
    "genie": "pnml.core.theorem",
    "metrics": "",
    "predictive": "pnml.core.theorem",
    "regret": "pnml.core.theorem",
    "report": "",
    "select": "pnml.core.selection",
}
_NEEDS_EXTRA = {  # name: its module, the extra that brings all it needs, the library that its module imports
    "Guard": ("pnml.pytorch.guard", "torch", "torch"),
    "guard": ("pnml.pytorch.guard", "torch", "torch"),
    "export_onnx": ("pnml.pytorch.export", "onnx", "torch"),
    "PNMLClassifier": ("pnml.integrations.sklearn", "sklearn", "sklearn"),
    "PNMLOutlierDetector": ("pnml.integrations.sklearn", "sklearn", "sklearn"),
}
__all__ = ["__version__"]
__all__ += list(_MODULES)
# `from pnml import *` gives what this install can import.
__all__ += [name for name, (*_, library) in _NEEDS_EXTRA.items() if is_installed(library)]


def __getattr__(name: str) -> Any:
    if name in _NEEDS_EXTRA:
        module, extra, _ = _NEEDS_EXTRA[name]
        return getattr(require(module, extra=extra, what=f"pnml.{name}"), name)
    if name not in _MODULES:
        raise AttributeError(f"module 'pnml' has no attribute {name!r}")
    if not _MODULES[name]:
        return import_module(f"pnml.{name}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_NEEDS_EXTRA})
