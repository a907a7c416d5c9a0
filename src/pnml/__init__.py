"""Know when a classifier's answer cannot be trusted, by the pNML regret (Bibas, Feder, Hassner, NeurIPS 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pnml._extras import require
from pnml._version import __version__
from pnml.calibration import Threshold
from pnml.correlation import Correlation
from pnml.detector import Detector
from pnml.learner import genie, predictive, regret
from pnml.result import Result
from pnml.single_layer import SingleLayer
from pnml.subspace import Subspace

if TYPE_CHECKING:
    from pnml.estimator import PNMLClassifier, PNMLOutlierDetector
    from pnml.export import export_onnx
    from pnml.torch_guard import Guard, guard

_NEEDS_EXTRA = {
    "Guard": ("pnml.torch_guard", "torch"),
    "guard": ("pnml.torch_guard", "torch"),
    "export_onnx": ("pnml.export", "onnx"),
    "PNMLClassifier": ("pnml.estimator", "sklearn"),
    "PNMLOutlierDetector": ("pnml.estimator", "sklearn"),
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
