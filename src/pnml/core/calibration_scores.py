"""What a threshold is calibrated from: scores, predicted classes, and how many rows are known from training."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.core.calibration import By, Threshold, calibrate
from pnml.core.sample import Recognised

if TYPE_CHECKING:
    from collections.abc import Sequence


_HARMLESS_SHARE = 0.1  # so few training rows raise the false-alarm rate by a ninth at most; chance repeats some rows


class TrainingRowsWarning(UserWarning):
    """Rows given as held-out data were recognised as training rows: more fresh samples are flagged than asked for."""


class RepeatedRowsWarning(UserWarning):
    """Many training rows have copies, which stay when one is left out: more fresh samples are flagged than asked."""


@dataclass(frozen=True)
class CalibrationScores:
    """Regrets of in-distribution samples; those of several batches are joined.

    Attributes:
        scores: the regrets, shape (n,).
        predictions: the predicted classes, shape (n,).
        n_classes: the number C of classes.
        leave_one_out: whether the samples are training rows, each scored as if it had not been fitted on.
        recognised: how many rows the detector knows from training; not counted where they are said to be training rows.
        repeated: the share of training rows that have copies; counts where the samples are training rows.
    """

    scores: np.ndarray[Any, Any]
    predictions: np.ndarray[Any, Any]
    n_classes: int
    leave_one_out: bool
    recognised: Recognised
    repeated: float = 0.0

    @classmethod
    def join(cls, parts: Sequence[CalibrationScores]) -> CalibrationScores:
        """Return the scores of all parts, in their order; raise ``ValueError`` when there are none."""
        if not parts:
            raise ValueError("no samples to calibrate on: pass at least one in-distribution sample")
        recognised = Recognised()
        for part in parts:
            recognised = recognised.plus(part.recognised)
        scores, predictions = (np.concatenate(x) for x in zip(*((p.scores, p.predictions) for p in parts), strict=True))
        repeated = max(part.repeated for part in parts)
        return cls(scores, predictions, parts[0].n_classes, parts[0].leave_one_out, recognised, repeated)

    def threshold(self, *, false_alarm_rate: float, by: By | None) -> Threshold:
        """Return the threshold; warn if training rows are among samples that should be held out, or have copies."""
        known, comparable = self.recognised
        share = known / max(1, comparable)
        source = left_out_source(self.repeated) if self.leave_one_out else "held-out"
        if share > _HARMLESS_SHARE:
            source = "not held-out"
            warnings.warn(
                f"{known:,} of {len(self.scores):,} calibration samples were recognised as training rows, {share:.0%} "
                "of those that the detector could recognise: more fresh samples will be flagged than asked for. "
                "Calibrate on held-out samples, or on the training set with leave_one_out=True (--leave-one-out)",
                TrainingRowsWarning,
                stacklevel=3,
            )
        return calibrate(
            self.scores,
            predictions=self.predictions,
            n_classes=self.n_classes,
            by=by,
            false_alarm_rate=false_alarm_rate,
            source=source,
        )


def left_out_source(repeated: float) -> str:
    """Return the source of a threshold set from training rows, each left out; warn if a share of them has copies."""
    if repeated <= _HARMLESS_SHARE:
        return "leave-one-out"
    warnings.warn(
        f"{repeated:.0%} of the training rows have copies among the others, which stay when one is left out: unless "
        "fresh samples repeat training rows as often, more of them will be flagged than asked for, several times as "
        "many in the worst case. Calibrate on held-out samples, or fit each row once, np.unique(rows, axis=0)",
        RepeatedRowsWarning,
        stacklevel=4,
    )
    return "repeated"
