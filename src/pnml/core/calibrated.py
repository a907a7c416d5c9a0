"""How a detector gets a threshold, and decides by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pnml.backend.arrays import Array, to_numpy
from pnml.core.calibration import By, Threshold, calibrate
from pnml.core.calibration_scores import CalibrationScores, left_out_source
from pnml.core.rows import check_scored
from pnml.core.sample import Recognised
from pnml.core.scored import Scored

if TYPE_CHECKING:
    from collections.abc import Sequence


class Calibrated(Scored):
    """The part of a :class:`~pnml.Detector` that decides."""

    def calibrate(
        self,
        embeddings: Array,
        *,
        features: Sequence[Array] | None = None,
        logits: Array | None = None,
        false_alarm_rate: float = 0.05,
        leave_one_out: bool = False,
        by: By | None = None,
    ) -> Threshold:
        """Set the threshold so that at most ``false_alarm_rate`` of in-distribution samples are flagged.

        If training rows are among the embeddings, a :class:`~pnml.core.calibration_scores.TrainingRowsWarning` says so.

        Args:
            embeddings: of in-distribution samples that were *not* fitted on, shape (n, M).
            features: of earlier layers, if the detector was fitted with them.
            logits: the model's own logits, shape (n, C), if they are passed when samples are scored.
            false_alarm_rate: the share of fresh in-distribution samples that may be flagged.
            leave_one_out: ``embeddings`` *are* training rows; score each as if it had not been fitted on. The network
                has still been trained on them, so the realised rate is higher than asked for, and higher still if rows
                have copies (a :class:`~pnml.core.calibration_scores.RepeatedRowsWarning` says so).
            by: "prediction" keeps the rate for every predicted class, by a threshold for each that has enough samples;
                None keeps it over all classes, of which a rare one may be flagged far more often.
        """
        found = self.calibration_scores(embeddings, features=features, logits=logits, leave_one_out=leave_one_out)
        self.threshold = found.threshold(false_alarm_rate=false_alarm_rate, by=by)
        return self.threshold

    def calibration_scores(
        self,
        embeddings: Array,
        *,
        features: Sequence[Array] | None = None,
        logits: Array | None = None,
        leave_one_out: bool = False,
    ) -> CalibrationScores:
        """Return what :meth:`calibrate` sets the threshold from, of one batch; those of several batches are joined.

        Args:
            embeddings: as for :meth:`calibrate`.
            features: as for :meth:`calibrate`.
            logits: as for :meth:`calibrate`.
            leave_one_out: as for :meth:`calibrate`.
        """
        batch, recognised = self._check_batch(embeddings, features), Recognised()
        score = self._score_left_out if leave_one_out else self._score_rows
        result = self._result(batch, score(batch.rows, batch.eps), logits)
        check_scored(result.regret, embeddings, features)
        if self.correlation.sample is not None and not leave_one_out:
            recognised = self.correlation.sample.recognise(batch.rows, width=self.n_features)
        predictions, repeated = to_numpy(result.prediction, np.int64), self._repeated if leave_one_out else 0.0
        return CalibrationScores(
            to_numpy(result.regret), predictions, self.n_classes, leave_one_out, recognised, repeated
        )

    @property
    def _repeated(self) -> float:
        """The share of training rows that have copies; 0 where it is not known."""
        return 0.0 if self.correlation.sample is None else self.correlation.sample.repeated

    def set_threshold(
        self,
        scores: Array,
        *,
        predictions: Array | None = None,
        false_alarm_rate: float = 0.05,
        leave_one_out: bool = False,
        by: By | None = None,
    ) -> Threshold:
        """Set the threshold from in-distribution scores (n,) of :meth:`score`; see :meth:`calibrate`.

        Args:
            scores: the regrets, shape (n,).
            predictions: the predicted classes, shape (n,): needed for ``by="prediction"``.
            false_alarm_rate: as for :meth:`calibrate`.
            leave_one_out: whether the scores are those of training rows, each left out.
            by: as for :meth:`calibrate`.
        """
        self.threshold = calibrate(
            scores,
            predictions=predictions,
            n_classes=self.n_classes,
            by=by,
            false_alarm_rate=false_alarm_rate,
            source=left_out_source(self._repeated) if leave_one_out else "held-out",
        )
        return self.threshold

    def is_ood(self, embeddings: Array, *, features: Sequence[Array] | None = None) -> Array:
        """Return whether the regret of each sample exceeds the calibrated threshold, shape (n,)."""
        if self.threshold is None:
            raise ValueError("no threshold is set: call calibrate(held_out_embeddings) first")
        return self(embeddings, features=features).is_ood
