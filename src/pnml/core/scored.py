"""What a fitted detector says about samples: results, regrets, predictions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from pnml.backend.arrays import Array, is_remote, namespace
from pnml.backend.rows import check_finite, check_shape
from pnml.core.batch import Batch
from pnml.core.fitted import Fitted
from pnml.core.float32_scorer import multiplies_in_float32
from pnml.core.joined import is_few
from pnml.core.result import Result
from pnml.core.rows import as_layers, check_features, checked_logits, join_layers

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOG = logging.getLogger("pnml")


class Scored(Fitted):
    """The part of a :class:`~pnml.Detector` that scores."""

    def __call__(
        self, embeddings: Array, *, features: Sequence[Array] | None = None, logits: Array | None = None
    ) -> Result:
        """Return predictions, probabilities, regret and, once calibrated, p-values and decisions.

        Args:
            embeddings: of any array library, shape (n, M).
            features: of earlier layers, if the detector was fitted with them.
            logits: the model's own logits, shape (n, C), where they are known; computed from the embeddings otherwise.
        """
        batch = self._check_batch(embeddings, features)
        return self._result(batch, self._score_rows(batch.rows, batch.eps), logits)

    def of_rows(self, rows: Array, logits: Array) -> Result:
        """Return what a call returns, given embeddings and features side by side, (n, M of all layers), and logits."""
        batch = self._batch_of_rows(rows)
        return self._result(batch, self._score_rows(batch.rows, batch.eps), logits)

    def _batch_of_rows(self, rows: Array) -> Batch:
        if not self.correlation.count:
            self._check_fitted()
        return Batch(check_shape(rows, self.n_features + sum(self.feature_widths)))

    def _result(self, batch: Batch, regret: Array, logits: Array | None) -> Result:
        logits = checked_logits(logits, regret.shape[0], self.n_classes)
        result = Result(batch, batch.finish(regret), self.exact_scorer, self.threshold, logits)
        if self.threshold is not None and self.threshold.by is None and is_remote(regret):
            _ = result.is_ood  # asked for while the GPU is at work: whoever reads it then waits for nothing else
        return result

    def score(
        self, embeddings: Array, *, features: Sequence[Array] | None = None, leave_one_out: bool = False
    ) -> Array:
        """Return the regret in nats, shape (n,): larger = less trustworthy; NaN for rows that are not finite.

        Embeddings in float64 are scored in float64. Embeddings in float32 or less are scored in float32, but for the
        rows whose rounding error might exceed 1 %, which are scored in float64, as are training rows left out.

        Args:
            embeddings: of any array library, shape (n, M).
            features: of earlier layers, if the detector was fitted with them.
            leave_one_out: the embeddings *are* training rows; score each as if it had not been fitted on.
        """
        batch = self._check_batch(embeddings, features)
        score = self._score_left_out if leave_one_out else self._score_rows
        return batch.convert(batch.finish(score(batch.rows, batch.eps)))

    def predict_proba(self, embeddings: Array, *, features: Sequence[Array] | None = None) -> Array:
        """Return the pNML probabilities q, shape (n, C)."""
        return self(embeddings, features=features).pnml_probabilities

    def predict(self, embeddings: Array) -> Array:
        """Return the model's most probable class, shape (n,)."""
        batch = Batch(check_shape(embeddings, self.n_features))
        return batch.convert(self._predict(batch.rows))

    def _check_batch(self, embeddings: Array, features: Sequence[Array] | None) -> Batch:
        x = check_shape(embeddings, self.n_features)
        layers = as_layers(features)
        if not self.correlation.count:
            self._check_fitted()
        check_features([int(layer.shape[1]) for layer in layers], self.feature_widths)
        return Batch(join_layers(x, layers))

    def _score_rows(self, rows: Array, eps: float) -> Array:
        """Return the regrets of rows: in float32 where that is accurate enough, in float64 otherwise."""
        exact, fast = self._fitted_scorers
        if exact.model.depth is not None and is_few(rows):  # float64 without a look at a value, which would be to wait
            return exact.of_few(rows)
        xp = namespace(rows)
        scorer = fast if fast is not None and multiplies_in_float32(rows) else exact
        regret, trusted = scorer.score(rows, eps)
        with np.errstate(all="ignore"):
            looks_finite = xp.isfinite(xp.sum(rows)) if self.feature_widths else True  # infinite ones may have a regret
        if not bool(trusted.all() & looks_finite):
            finite = xp.all(xp.isfinite(rows), axis=-1)
            if scorer is fast:
                doubtful = ~trusted & finite
                regret[doubtful] = xp.astype(exact.regret(rows[doubtful], eps), regret.dtype)
                _LOG.debug("scored %d of %d rows in float64", int(doubtful.sum()), len(rows))
            regret[~finite] = xp.nan
        return regret

    def _score_left_out(self, rows: Array, eps: float) -> Array:
        """Return the regrets of training rows, each as if it had not been fitted on."""
        regret = self.exact_scorer.regret(rows, eps, as_if_unseen=True)
        if not bool(namespace(rows).isfinite(regret).all()):
            check_finite(rows, (self.n_features, *self.feature_widths))
        return regret
