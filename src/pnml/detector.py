"""The detector on embeddings: fit on the training set's, then score, calibrate, decide, save."""

from __future__ import annotations

import hashlib
import warnings
from typing import TYPE_CHECKING, Any

import array_api_compat as compat
import numpy as np

from pnml import learner
from pnml._arrays import Array, Placed, as_array, precision, to_numpy, working_dtype
from pnml._rows import check_rows, chunks
from pnml._state import load_state, save_state
from pnml.calibration import Threshold, calibrate
from pnml.correlation import Correlation
from pnml.result import Result
from pnml.scaling import EMBEDDING_SCALES, EmbeddingScale, row_scale
from pnml.subspace import Subspace, leave_one_out, leverage, xtg

if TYPE_CHECKING:
    import os

_KIND, _VERSION = "pnml.detector", 1


class FewRowsWarning(UserWarning):
    """There are not more training rows than features, so that nearly every new row lies outside of their span."""


class Detector:
    """Out-of-distribution detector for any softmax classifier, given its last layer and its training embeddings.

    Scores are pNML regrets in nats: larger = less trustworthy. Fitting is one streaming pass in O(M²) memory, needs no
    labels and no out-of-distribution data, and has nothing to tune.

    Args:
        weight: the last linear layer's weight, shape (C, M).
        bias: its bias, shape (C,); zeros when left out.
        embedding_scale: "paper" scales every embedding to norm 1; "natural" leaves them as they are.

    Attributes:
        threshold: the calibrated :class:`~pnml.calibration.Threshold`, None before :meth:`calibrate`.

    >>> rng = np.random.default_rng(0)
    >>> train = rng.normal(size=(500, 8)) @ np.diag([3, 3, 3, 3, 0.01, 0.01, 0.01, 0.01])
    >>> detector = Detector(rng.normal(size=(4, 8)), np.zeros(4)).fit(train)
    >>> seen, unseen = train[:1], np.eye(8)[7:]
    >>> bool(detector.score(unseen)[0] > detector.score(seen)[0])
    True
    """

    def __init__(self, weight: Array, bias: Array | None = None, *, embedding_scale: EmbeddingScale = "paper") -> None:
        self.weight = check_rows(to_numpy(as_array(weight)), None)
        if len(self.weight) < 2:
            raise ValueError(
                "a head of one class has nothing to regret: expected a weight of shape (classes, features)"
            )
        self.bias = np.zeros(len(self.weight)) if bias is None else to_numpy(as_array(bias))
        if self.bias.shape != (len(self.weight),):
            raise ValueError(f"bias must have one entry per class, {len(self.weight)}, got shape {self.bias.shape}")
        if not np.isfinite(self.bias).all():
            raise ValueError(f"bias holds {self.bias[~np.isfinite(self.bias)][0]}: every value must be finite")
        if embedding_scale not in EMBEDDING_SCALES:
            raise ValueError(f"embedding_scale must be one of {EMBEDDING_SCALES}, got {embedding_scale!r}")
        self.embedding_scale = embedding_scale
        self.threshold: Threshold | None = None
        self.correlation = self._empty_correlation()
        self._subspace: Subspace | None = None
        self._head = Placed(self.weight.T, self.bias)

    @property
    def n_classes(self) -> int:
        """The number C of classes."""
        return len(self.weight)

    @property
    def n_features(self) -> int:
        """The width M of an embedding."""
        return int(self.weight.shape[1])

    @property
    def head_digest(self) -> str:
        """A fingerprint of the last layer, to tell a detector fitted for another one."""
        return head_digest(self.weight, self.bias)

    @property
    def subspace(self) -> Subspace:
        """The geometry of the training embeddings, decomposed when first asked for."""
        if self._subspace is None:
            if self.correlation.count == 0:
                raise ValueError("the detector is not fitted: call fit(training_embeddings) first")
            if self.correlation.count <= self.n_features:
                message = (
                    f"{self.correlation.count} training rows for {self.n_features} features span so little that nearly "
                    "every new row counts as unseen, whatever it is: fit on more rows, best on the whole training set"
                )
                warnings.warn(message, FewRowsWarning, stacklevel=2)
            self._subspace = Subspace.fit(self.correlation)
        return self._subspace

    def fit(self, embeddings: Array) -> Detector:
        """Learn from the training set's embeddings, shape (N, M), forgetting what was fitted before."""
        fitted = self._empty_correlation().update(embeddings)
        self.correlation = self._empty_correlation()
        return self.merge(fitted)

    def partial_fit(self, embeddings: Array) -> Detector:
        """Add a batch of training embeddings, shape (n, M); a threshold set before is dropped."""
        return self.merge(self._empty_correlation().update(embeddings))

    def _empty_correlation(self) -> Correlation:
        return Correlation(self.n_features, unit_norm=self.embedding_scale == "paper")

    def merge(self, correlation: Correlation) -> Detector:
        """Add the statistic of further training rows, fitted elsewhere; a threshold set before is dropped."""
        self.correlation = self.correlation + correlation
        self._subspace = self.threshold = None
        return self

    def __call__(self, embeddings: Array) -> Result:
        """Say everything about embeddings of shape (n, M)."""
        return self._assess(embeddings, without_itself=False)

    def score(self, embeddings: Array, *, leave_one_out: bool = False) -> Array:
        """Give the regret in nats, shape (n,): larger = less trustworthy.

        With ``leave_one_out`` the embeddings are training rows, each scored as if it had not been fitted on.
        """
        return self._assess(embeddings, without_itself=leave_one_out).regret

    def predict_proba(self, embeddings: Array) -> Array:
        """Give the pNML probabilities q, shape (n, C)."""
        return self(embeddings).pnml_probabilities

    def predict(self, embeddings: Array) -> Array:
        """Give the model's most probable class, shape (n,)."""
        return self(embeddings).prediction

    def calibrate(self, embeddings: Array, *, false_alarm_rate: float = 0.05, leave_one_out: bool = False) -> Threshold:
        """Set the threshold so that at most ``false_alarm_rate`` of in-distribution samples are flagged.

        Args:
            embeddings: of in-distribution samples that were *not* fitted on, shape (n, M).
            false_alarm_rate: the share of fresh in-distribution samples that may be flagged.
            leave_one_out: say that ``embeddings`` *are* training rows; each is then scored as if it had not been seen.
                The network has still trained on them, so the realised rate is higher than asked for.
        """
        scores = self.score(embeddings, leave_one_out=leave_one_out)
        source = "leave-one-out" if leave_one_out else "held-out"
        self.threshold = calibrate(scores, false_alarm_rate=false_alarm_rate, source=source)
        return self.threshold

    def is_ood(self, embeddings: Array) -> Array:
        """Tell of each sample whether its regret exceeds the calibrated threshold, shape (n,)."""
        if self.threshold is None:
            raise ValueError("no threshold is set: call calibrate(held_out_embeddings) first")
        return self.threshold.is_ood(self.score(embeddings))

    def _assess(self, embeddings: Array, *, without_itself: bool) -> Result:
        x = check_rows(embeddings, self.n_features)
        xp = compat.array_namespace(x)
        limits = self.subspace.outside_limits(precision(x))
        error = self.subspace.relative_error if without_itself else None
        if x.shape[0] == 0:
            raise ValueError("expected at least one embedding, got none")
        parts = [
            assess(
                chunk,
                self._head.beside(chunk),
                self.subspace.basis.beside(chunk),
                limits,
                embedding_scale=self.embedding_scale,
                leave_one_out_error=error,
            )
            for _, chunk in chunks(x)
        ]
        out = working_dtype(xp, x)
        logits, p, q, t, gamma = (xp.astype(xp.concat(columns), out) for columns in zip(*parts, strict=True))
        decided = {}
        if self.threshold is not None:
            decided = {"p_value": self.threshold.p_value(gamma), "is_ood": self.threshold.is_ood(gamma)}
        return Result(logits, xp.argmax(logits, axis=-1), p, q, t, gamma, **decided)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted detector, and its threshold if set, to a safetensors file."""
        subspace, threshold = self.subspace, self.threshold
        arrays = {
            "weight": self.weight,
            "bias": self.bias,
            "eigenvalues": subspace.eigenvalues,
            "eigenvectors": subspace.eigenvectors,
        }
        info: dict[str, Any] = {
            "count": self.correlation.count,
            "norm_sum": self.correlation.norm_sum,
            "embedding_scale": self.embedding_scale,
            "head_digest": self.head_digest,
            "threshold": None,
        }
        if threshold is not None:
            arrays["calibration_scores"] = threshold.scores
            info["threshold"] = {
                "value": threshold.value,
                "false_alarm_rate": threshold.false_alarm_rate,
                "interval": threshold.interval,
                "confidence": threshold.confidence,
                "source": threshold.source,
            }
        save_state(path, _KIND, _VERSION, arrays, info)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Detector:
        """Read a detector written by :meth:`save`."""
        arrays, info = load_state(path, _KIND, _VERSION)
        detector = cls(arrays["weight"], arrays["bias"], embedding_scale=info["embedding_scale"])
        detector._subspace = Subspace(arrays["eigenvalues"], arrays["eigenvectors"], info["count"])
        detector.correlation = Correlation.restore(
            detector._subspace.correlation, info["count"], info["norm_sum"], unit_norm=detector.correlation.unit_norm
        )
        if info["threshold"] is not None:
            held = dict(info["threshold"], interval=tuple(info["threshold"]["interval"]))
            detector.threshold = Threshold(**held, scores=arrays["calibration_scores"])
        return detector


def head_digest(weight: Array, bias: Array) -> str:
    """Fingerprint a last layer by its float32 values."""
    digest = hashlib.sha256()
    for values in (weight, bias):
        digest.update(np.ascontiguousarray(to_numpy(values, "<f4")).tobytes())
    return digest.hexdigest()


def assess(
    x: Array,
    head: tuple[Array, ...],
    basis: tuple[Array, ...],
    outside_limits: tuple[float, float],
    *,
    embedding_scale: EmbeddingScale,
    leave_one_out_error: float | None = None,
) -> tuple[Array, Array, Array, Array, Array]:
    """Give logits, p, q, xᵀg and regret of embeddings (n, M): matrix products, in the arrays' own library.

    Args:
        x: embeddings.
        head: transposed weight (M, C) and bias (C,).
        basis: whitening and null space of the :class:`~pnml.Subspace`.
        outside_limits: of the Subspace, for the precision of the embeddings.
        embedding_scale: as of the :class:`Detector`.
        leave_one_out_error: given, the rows are training rows to be scored as if unseen; h's relative error.
    """
    weight, bias = head
    whitening, null_space = basis
    xp = compat.array_namespace(x)
    projected = x @ weight
    logits = projected + bias
    scale = row_scale(x, embedding_scale)
    log_p = learner.log_softmax(projected * scale[:, None] + bias)
    h = leverage(x * scale[:, None], whitening, null_space, outside_limits)
    t = xtg(leave_one_out(h, leave_one_out_error) if leave_one_out_error is not None else h)
    t = xp.where(scale > 0, t, xp.ones_like(t))  # no direction: nothing the training set could say about it
    probabilities = xp.exp(learner.log_softmax(logits))
    return logits, probabilities, learner.predictive(log_p, t, log=True), t, learner.regret(log_p, t, log=True)
