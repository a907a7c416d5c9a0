"""What a detector found about a batch in which every token or pixel has an answer of its own."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from pnml.backend.arrays import namespace
from pnml.core.result import Result

if TYPE_CHECKING:
    import numpy as np

    from pnml.backend.arrays import Array


class PlacedResult(Result):
    """A result with one entry per token or pixel: every field has the shape of the places in front.

    Args:
        flat: the result of all places of all samples, one after the other.
        places: their shape: (n, T) for tokens, (n, H, W) for pixels.

    >>> import numpy as np
    >>> from pnml import Detector
    >>> detector = Detector(np.eye(2)).fit(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    >>> PlacedResult(detector(np.ones((6, 2))), (2, 3)).regret.shape
    (2, 3)
    """

    def __init__(self, flat: Result, places: tuple[int, ...]) -> None:
        self._flat, self._places = flat, places
        self._threshold = flat._threshold  # noqa: SLF001 - of its own base class

    @cached_property
    def regret(self) -> Array:
        """The score Γ of every place in nats; larger = less trustworthy, shape of the places."""
        return self._placed(self._flat.regret)

    @cached_property
    def logits(self) -> Array:
        """The model's logits, shape (places, C)."""
        return self._placed(self._flat.logits)

    @cached_property
    def pnml_probabilities(self) -> Array:
        """The pNML probabilities q of the scaled embeddings, shape (places, C)."""
        return self._placed(self._flat.pnml_probabilities)

    @cached_property
    def xtg(self) -> Array:
        """xᵀg in [0, 1], how little the training set says about each place's direction, shape of the places."""
        return self._placed(self._flat.xtg)

    @cached_property
    def leverage_by_layer(self) -> Array:
        """The shares of the layers in the leverage h, shape (places, 1): the embedding alone is watched."""
        return self._placed(self._flat.leverage_by_layer)

    @cached_property
    def p_value(self) -> Array | None:
        """The share of in-distribution places with a regret as large, shape of the places; None until calibrated."""
        return None if self._flat.p_value is None else self._placed(self._flat.p_value)

    @cached_property
    def is_ood(self) -> Array | None:
        """Whether the regret exceeds the threshold, shape of the places; None until calibrated."""
        return None if self._flat.is_ood is None else self._placed(self._flat.is_ood)

    def __len__(self) -> int:
        return self._places[0]

    def to_table(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return one NumPy column per quantity, with one entry per place: those of the first sample come first."""
        return self._flat.to_table()

    def _placed(self, values: Array) -> Array:
        return namespace(values).reshape(values, (*self._places, *values.shape[1:]))
