"""What every method offers: it is fitted once, then gives one score per sample, alone and composed with pNML.

A larger score means more out-of-distribution, everywhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from pnml.bench.methods.view import View
    from pnml.core.detector import Detector

    Rows = slice | NDArray[np.intp]


class MethodFailedError(ValueError):
    """A method could not be fitted, or gave no usable scores: its cell has no result, and the run goes on."""


class Method(ABC):
    """A score for out-of-distribution detection.

    Attributes:
        name: how the paper's tables, or else its users, call it.
        composes: whether it has a score with pNML beside its own.
        runs_on: the device it computes on, where that is not the network's.
    """

    name: ClassVar[str]
    composes: ClassVar[bool] = True
    runs_on: ClassVar[str | None] = None

    def fit(self, train: View, detector: Detector) -> Method:
        """Learn what is needed from in-distribution training images.

        Args:
            train: the images the network was trained on.
            detector: fitted on their embeddings; it gives the regret that the method is composed with.
        """
        del train
        self.detector = detector
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """What was chosen on the way and belongs into the record of a result."""
        return {}

    @abstractmethod
    def score(self, view: View) -> Tensor:
        """Give the method's own score of every image, shape (n,)."""

    def score_with_pnml(self, view: View) -> Tensor:
        """Give the score composed with pNML, shape (n,): the regret in nats, unless the method says otherwise."""
        if not self.composes:
            raise ValueError(f"what {self.name} is with pNML is not defined: take its own score")
        regret: Tensor = view.once(("regret", id(self.detector)), lambda: self.detector.score(view.embeddings))
        return regret

    def trials(self, ind: View, ood: View) -> Iterator[Rows]:
        """Make ready to tell one pair of sets apart, and yield which rows of ``ind`` to do it on, once per trial.

        Metrics are averaged over the trials. Most methods have one, on all rows; one that needs in-distribution images
        beside the training set takes them from ``ind``, and leaves them out of the rows.
        """
        del ind, ood
        yield slice(None)
