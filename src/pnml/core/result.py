"""What a detector found about a batch, each quantity computed when it is first read."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import namespace, to_numpy
from pnml.core.theorem import log_softmax

if TYPE_CHECKING:
    from pnml.backend.arrays import Array
    from pnml.core.batch import Batch
    from pnml.core.calibration import Threshold
    from pnml.core.scorer import Float64Scorer

_FIELDS = ("logits", "prediction", "probabilities", "pnml_probabilities", "xtg", "leverage_by_layer", "regret")
_DECIDED = ("p_value", "is_ood")


class Result:
    """One entry per sample, in the library and on the device of the input.

    The regret is computed when the result is made, the other fields when they are first read. If the memory of the
    embeddings was overwritten in between, those that need the embeddings raise ``RuntimeError``.
    """

    def __init__(
        self,
        batch: Batch,
        regret: Array,
        scorer: Float64Scorer,
        threshold: Threshold | None = None,
        logits: Array | None = None,
    ) -> None:
        self._batch, self._regret, self._scorer, self._threshold = batch, regret, scorer, threshold
        self._given_logits = logits

    @cached_property
    def regret(self) -> Array:
        """The score Γ in nats; larger = less trustworthy, shape (n,)."""
        return self._batch.convert(self._regret)

    @cached_property
    def logits(self) -> Array:
        """The model's logits, shape (n, C)."""
        return (
            self._convert(self._scorer.logits(self._batch.unchanged_rows()))
            if self._given_logits is None
            else self._given_logits
        )

    @cached_property
    def prediction(self) -> Array:
        """The most probable class, shape (n,)."""
        return namespace(self.logits).argmax(self.logits, axis=-1)

    @cached_property
    def probabilities(self) -> Array:
        """The model's own probabilities p, shape (n, C)."""
        xp = namespace(self.logits)
        return xp.exp(log_softmax(xp.astype(self.logits, self.regret.dtype, copy=False)))

    @cached_property
    def pnml_probabilities(self) -> Array:
        """The pNML probabilities q of the scaled embeddings, shape (n, C)."""
        return self._convert(self._scorer.predictive(self._batch.unchanged_rows(), self._batch.eps))

    @cached_property
    def xtg(self) -> Array:
        """xᵀg in [0, 1], how little the training set says about the sample's direction, shape (n,)."""
        return self._convert(self._scorer.xtg(self._batch.unchanged_rows(), self._batch.eps))

    @cached_property
    def leverage_by_layer(self) -> Array:
        """The shares of the embedding and of every earlier layer in the leverage h, shape (n, 1 + layers).

        They sum to h, and xᵀg = h / (1 + h). A layer in which the sample is like the training set has a share of 0.
        """
        return self._convert(self._scorer.shares(self._batch.unchanged_rows(), self._batch.eps))

    @cached_property
    def p_value(self) -> Array | None:
        """The share of in-distribution data with a regret as large, shape (n,); None until calibrated."""
        return None if self._threshold is None else self._batch.convert(self._threshold.p_value(self._regret))

    @cached_property
    def is_ood(self) -> Array | None:
        """Whether the regret exceeds the threshold, shape (n,); None until calibrated."""
        return None if self._threshold is None else self._batch.convert(self._threshold.is_ood(self._regret))

    def __len__(self) -> int:
        return int(self._regret.shape[0])

    def to_table(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return one NumPy column per per-sample quantity, ready for ``pandas.DataFrame`` or ``pyarrow.table``.

        ``probability`` is the model's probability of its prediction.

        >>> from pnml import Detector
        >>> detector = Detector(np.eye(2), np.zeros(2)).fit(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        >>> list(detector(np.eye(2)).to_table())
        ['prediction', 'probability', 'xtg', 'regret']
        """
        table = {
            "prediction": to_numpy(self.prediction, np.int64),
            "probability": to_numpy(self.probabilities).max(axis=-1),
            "xtg": to_numpy(self.xtg),
            "regret": to_numpy(self.regret),
        }
        if self._threshold is not None:
            table |= {"p_value": to_numpy(self.p_value), "is_ood": to_numpy(self.is_ood, bool)}
        return table

    def __repr__(self) -> str:
        names = _FIELDS if self._threshold is None else _FIELDS + _DECIDED
        flagged = "" if self.is_ood is None else f", {int(to_numpy(self.is_ood).sum())} out-of-distribution"
        return f"Result({len(self)} samples{flagged}: {', '.join(names)})"

    def _convert(self, values: Array) -> Array:
        return self._batch.convert(self._batch.finish(values))
