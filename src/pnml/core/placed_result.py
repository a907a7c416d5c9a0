"""What a detector found about a batch in which every token or pixel has an answer of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pnml.backend.arrays import namespace
from pnml.core.result import Part, Result

if TYPE_CHECKING:
    import numpy as np


class PlacedResult(Part):
    """A result with one entry per token or pixel: every field has the shape of the places in front.

    Args:
        flat: the result of all places of all samples, one after the other.
        places: their shape: (n, T) for tokens, (n, H, W) for pixels.

    >>> import numpy as np
    >>> from pnml import Detector
    >>> detector = Detector(np.eye(2)).fit(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    >>> result = PlacedResult(detector(np.ones((6, 2))), (2, 3))
    >>> result.regret.shape, result.probabilities.shape
    ((2, 3), (2, 3, 2))
    """

    def __init__(self, flat: Result, places: tuple[int, ...]) -> None:
        super().__init__(flat, lambda values: namespace(values).reshape(values, (*places, *values.shape[1:])))

    def to_table(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return one NumPy column per quantity, with one entry per place: those of the first sample come first."""
        return self.whole.to_table()
