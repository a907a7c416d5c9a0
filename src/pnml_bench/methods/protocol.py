"""The interface of a method: fitted once, it returns one score per image, alone and combined with pNML.

A larger score always means more out-of-distribution.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor
    from typing_extensions import Self

    from pnml.core.detector import Detector
    from pnml_bench.methods.regret import PublishedDetector
    from pnml_bench.methods.view import View

    Rows = slice | NDArray[np.intp]


class MethodFailedError(ValueError):
    """Raised when a method cannot be fitted or returns unusable scores; the run continues without its result."""


class Method(ABC):
    """A score for out-of-distribution detection.

    Attributes:
        name: the method's name on the command line and in results.
        composes: whether the method can be combined with pNML.
        is_regret: whether the score is a pNML regret itself.
        runs_on: the device the method computes on if it is not the network's.
        needs_features: whether the method reads features of earlier layers.
        detector: whose regret the method is combined with.
    """

    name: ClassVar[str]
    composes: ClassVar[bool] = True
    is_regret: ClassVar[bool] = False
    runs_on: ClassVar[str | None] = None
    needs_features: ClassVar[bool] = False

    detector: Detector | PublishedDetector

    def fit(self, train: View) -> Method:
        """Fit the method on the in-distribution images that the network was trained on."""
        del train
        return self

    def combine(self, detector: Detector | PublishedDetector) -> Self:
        """Set the detector, fitted on the same images, whose regret the method is combined with."""
        self.detector = detector
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """Settings and fitted hyper-parameters to record with the result."""
        return {}

    @abstractmethod
    def score(self, view: View) -> Tensor:
        """Return the method's own score of every image, shape (n,)."""

    def score_with_pnml(self, view: View) -> Tensor:
        """Return the score combined with pNML, shape (n,): by default the regret in nats."""
        if not self.composes:
            raise ValueError(f"{self.name} has no combination with pNML: call score() instead of score_with_pnml()")
        regret: Tensor = view.cached(("regret", id(self.detector)), lambda: self.detector.score(view.embeddings))
        return regret

    def trials(self, ind: View, ood: View) -> Iterator[Rows]:
        """Prepare the method for one pair of image sets, and yield the rows of ``ind`` to evaluate, once per trial.

        Metrics are averaged over the trials. Most methods have a single trial on all rows. A method that needs
        in-distribution images outside of the training set takes them from ``ind`` and leaves them out of the rows.
        """
        del ind, ood
        yield slice(None)
