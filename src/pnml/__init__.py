"""Know when a classifier's answer cannot be trusted, by the pNML regret (Bibas, Feder, Hassner, NeurIPS 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pnml._version import __version__
from pnml.backend.extras import require
from pnml.core.calibration import Threshold
from pnml.core.correlation import Correlation
from pnml.core.detector import Detector
from pnml.core.result import Result
from pnml.core.single_layer import SingleLayer
from pnml.core.subspace import Subspace
from pnml.core.theorem import genie, predictive, regret

if TYPE_CHECKING:
    from pnml.integrations.sklearn import PNMLClassifier, PNMLOutlierDetector
    from pnml.pytorch.export import export_onnx
    from pnml.pytorch.guard import Guard, guard

_NEEDS_EXTRA = {
    "Guard": ("pnml.pytorch.guard", "torch"),
    "guard": ("pnml.pytorch.guard", "torch"),
    "export_onnx": ("pnml.pytorch.export", "onnx"),
    "PNMLClassifier": ("pnml.integrations.sklearn", "sklearn"),
    "PNMLOutlierDetector": ("pnml.integrations.sklearn", "sklearn"),
}

__all__ = [
    "Correlation",
    "Detector",
    "Guard",
    "PNMLClassifier",
    "PNMLOutlierDetector",
    "Result",
    "SingleLayer",
    "Subspace",
    "Threshold",
    "__version__",
    "export_onnx",
    "genie",
    "guard",
    "predictive",
    "regret",
]


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_EXTRA:
        raise AttributeError(f"module 'pnml' has no attribute {name!r}")
    module, extra = _NEEDS_EXTRA[name]
    return getattr(require(module, extra=extra, what=f"pnml.{name}"), name)


def __dir__() -> list[str]:
    return __all__
