"""What a detector says about a batch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from pnml.backend.arrays import Array, to_numpy


@dataclass(frozen=True, eq=False)
class Result:
    """One entry per sample, in the library and on the device of the input.

    Attributes:
        logits: the model's logits, shape (n, C).
        prediction: the most probable class, shape (n,).
        probabilities: the model's own probabilities p, shape (n, C).
        pnml_probabilities: the pNML probabilities q of the scaled embeddings, shape (n, C).
        xtg: xᵀg in [0, 1], how little the training set says about the sample's direction, shape (n,).
        regret: the score Γ in nats; larger = less trustworthy, shape (n,).
        p_value: share of in-distribution data with a regret as large; None until calibrated.
        is_ood: whether the regret exceeds the threshold; None until calibrated.
    """

    logits: Array
    prediction: Array
    probabilities: Array
    pnml_probabilities: Array
    xtg: Array
    regret: Array
    p_value: Array | None = None
    is_ood: Array | None = None

    def __len__(self) -> int:
        return int(self.regret.shape[0])

    def to_table(self) -> dict[str, np.ndarray[Any, Any]]:
        """Give one NumPy column per per-sample quantity, ready for ``pandas.DataFrame`` or ``pyarrow.table``.

        ``probability`` is the model's probability of its prediction.

        >>> from pnml import Detector
        >>> detector = Detector(np.eye(2), np.zeros(2)).fit(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        >>> list(detector(np.eye(2)).to_table())
        ['prediction', 'probability', 'xtg', 'regret']
        """
        probability = to_numpy(self.probabilities).max(axis=-1)
        table = {"prediction": to_numpy(self.prediction, np.int64), "probability": probability}
        for name in ("xtg", "regret", "p_value"):
            if getattr(self, name) is not None:
                table[name] = to_numpy(getattr(self, name))
        if self.is_ood is not None:
            table["is_ood"] = to_numpy(self.is_ood, bool)
        return table

    def __repr__(self) -> str:
        held = ", ".join(f.name for f in fields(self) if getattr(self, f.name) is not None)
        flagged = "" if self.is_ood is None else f", {int(to_numpy(self.is_ood).sum())} out-of-distribution"
        return f"Result({len(self)} samples{flagged}: {held})"
