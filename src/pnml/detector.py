"""The detector on embeddings: fit on the training set's, then score, calibrate, decide, save."""

from __future__ import annotations

import hashlib
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import array_api_compat as compat
import numpy as np

from pnml import scoring
from pnml._arrays import Array, Placed, as_array, has_float64, like, precision, to_numpy, working_dtype
from pnml._rows import check_finite, check_rows, check_shape, chunks, is_narrow, wide_dtype
from pnml._state import load_state, save_state
from pnml.calibration import Threshold, calibrate
from pnml.correlation import Correlation
from pnml.quick import Quick
from pnml.result import Result
from pnml.sample import RowSample
from pnml.scaling import EMBEDDING_SCALES, EmbeddingScale, balanced_length
from pnml.scoring import assess
from pnml.subspace import Subspace

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

__all__ = ["Detector", "FewRowsWarning", "Precision", "assess", "head_digest"]

Precision = Literal["float64", "float32"]
"""``"float64"``: exact to rounding. ``"float32"``: quick, and exact wherever float32 might be off by more than 1 %."""

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
        embedding_scale: "auto" gives every embedding the one length at which the model is neither certain nor clueless
            about the training set, and sees near- and far-OOD; "paper" scales to norm 1, which reproduces the paper's
            numbers; "natural" leaves embeddings as they are.

    Attributes:
        threshold: the calibrated :class:`~pnml.calibration.Threshold`, None before :meth:`calibrate`.

    >>> rng = np.random.default_rng(0)
    >>> train = rng.normal(size=(500, 8)) @ np.diag([3, 3, 3, 3, 0.01, 0.01, 0.01, 0.01])
    >>> detector = Detector(rng.normal(size=(4, 8)), np.zeros(4)).fit(train)
    >>> seen, unseen = train[:1], np.eye(8)[7:]
    >>> bool(detector.score(unseen)[0] > detector.score(seen)[0])
    True
    """

    def __init__(self, weight: Array, bias: Array | None = None, *, embedding_scale: EmbeddingScale = "auto") -> None:
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
        self._quick_scorer: Quick | None = None
        self._length: float | None = None
        self._placed_head: Placed | None = None

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

    @property
    def embedding_length(self) -> float:
        """The length that embeddings of norm 1 are given for their p: 1, but for "auto"."""
        if self.embedding_scale != "auto":
            return 1.0
        if self._length is None:
            _ = self.subspace  # says what is missing if nothing was fitted
            if self.correlation.sample is None:
                raise ValueError(
                    'embedding_scale="auto" needs a sample of the training rows, and this Correlation was restored '
                    'without one: fit it on the rows again, or take embedding_scale="paper"'
                )
            self._length = balanced_length(self.correlation.sample.numpy(), self.weight, self.bias)
        return self._length

    @property
    def scaled_weight(self) -> np.ndarray[Any, Any]:
        """The weight times :attr:`embedding_length`: what gives the logits of a direction at its length, (C, M)."""
        return np.asarray(self.weight * self.embedding_length)

    @property
    def _head(self) -> Placed:
        if self._placed_head is None:
            self._placed_head = Placed(self.scaled_weight.T, self.bias)
        return self._placed_head

    @property
    def _quick(self) -> Quick:
        if self._quick_scorer is None or self._quick_scorer.subspace is not self.subspace:
            self._quick_scorer = Quick(self.scaled_weight, self.bias, self.subspace, self.embedding_scale)
        return self._quick_scorer

    def fit(self, embeddings: Array) -> Detector:
        """Learn from the training set's embeddings, shape (N, M), forgetting what was fitted before."""
        fitted = self._empty_correlation().update(embeddings)
        self.correlation = self._empty_correlation()
        return self.merge(fitted)

    def partial_fit(self, embeddings: Array) -> Detector:
        """Add a batch of training embeddings, shape (n, M); a threshold set before is dropped."""
        return self.merge(self._empty_correlation().update(embeddings))

    def _empty_correlation(self) -> Correlation:
        return Correlation(self.n_features, unit_norm=self.embedding_scale != "natural")

    def merge(self, correlation: Correlation) -> Detector:
        """Add the statistic of further training rows, fitted elsewhere; a threshold set before is dropped."""
        self.correlation = self.correlation + correlation
        self._subspace = self._length = self._placed_head = self.threshold = None
        return self

    def __call__(self, embeddings: Array) -> Result:
        """Say everything about embeddings of shape (n, M)."""
        x = self._batch(embeddings)
        logits, p, q, t, gamma = self._by_chunk(x, partial(assess, length=self.embedding_length))
        decided = {}
        if self.threshold is not None:
            decided = {"p_value": self.threshold.p_value(gamma), "is_ood": self.threshold.is_ood(gamma)}
        return Result(logits, compat.array_namespace(x).argmax(logits, axis=-1), p, q, t, gamma, **decided)

    def score(
        self,
        embeddings: Array,
        *,
        leave_one_out: bool = False,
        precision: Precision = "float64",
        compiled: bool = False,
    ) -> Array:
        """Give the regret in nats, shape (n,): larger = less trustworthy.

        Args:
            embeddings: of any array library, shape (n, M).
            leave_one_out: say that the embeddings *are* training rows; each is then scored as if it had not been seen.
            precision: "float64" is exact, also for embeddings in float32. "float32" takes about half the time on NumPy
                and PyTorch arrays: every regret whose error might exceed 1 % is found and computed in float64 after
                all, as are leave-one-out regrets.
            compiled: let ``torch.compile`` fuse the work on PyTorch tensors. Its first call takes up to a minute: worth
                it on a GPU, for many millions of embeddings.
        """
        if precision not in get_args(Precision):
            raise ValueError(f"precision must be one of {get_args(Precision)}, got {precision!r}")
        x = self._batch(embeddings)
        if compiled and not compat.is_torch_array(x):
            raise ValueError(f"compiled=True is for PyTorch tensors, got {type(x).__name__}")
        if precision == "float32" and not leave_one_out and self._quick.suits(x):
            return self._quick_score(x, compiled=compiled)
        function = scoring.compiled(scoring.regret) if compiled else scoring.regret
        return self._by_chunk(x, function, leave_one_out=leave_one_out)[0]

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

    def _batch(self, embeddings: Array) -> Array:
        x = check_shape(embeddings, self.n_features)
        if x.shape[0] == 0:
            raise ValueError("expected at least one embedding, got none")
        return x

    def _by_chunk(self, x: Array, function: Callable[..., Any], *, leave_one_out: bool = False) -> list[Array]:
        """Compute in float64, and give each quantity in the library and working precision of the embeddings.

        The last quantity is the regret: it is not finite where an embedding is not, which is looked at once, at the
        end, so that no chunk waits for another.
        """
        xp = compat.array_namespace(x)
        rows = x if has_float64(x) else to_numpy(x)
        dtype = wide_dtype(rows)
        head, basis = self._head.beside(rows, dtype), self.subspace.basis.beside(rows, dtype)
        limits = self.subspace.outside_limits(precision(x))
        options = {
            "embedding_scale": self.embedding_scale,
            "leave_one_out_error": self.subspace.relative_error if leave_one_out else None,
            "in_range": is_narrow(rows),
        }
        with np.errstate(all="ignore"):
            parts = [function(chunk, head, basis, limits, **options) for chunk in chunks(rows, dtype)]
        home = compat.array_namespace(rows)
        columns = [home.concat(column) for column in zip(*parts, strict=True)]
        if not bool(home.all(home.isfinite(columns[-1]))):
            check_finite(x)
        out = working_dtype(xp, x)
        return [xp.astype(c, out) if rows is x else like(x, c, out) for c in columns]

    def _quick_score(self, x: Array, *, compiled: bool) -> Array:
        """Compute in float32, and again in float64 what float32 leaves in doubt."""
        xp = compat.array_namespace(x)
        gamma, trusted = self._quick.score(x, fused=compiled)
        gamma = xp.astype(gamma, working_dtype(xp, x))
        if not bool(xp.all(trusted)):
            check_finite(x)
            gamma[~trusted] = self.score(x[~trusted])
        return gamma

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
            "embedding_length": self.embedding_length,
            "head_digest": self.head_digest,
            "threshold": None,
        }
        if self.embedding_scale == "auto" and self.correlation.sample is not None:
            arrays |= self.correlation.sample.arrays()
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
            detector._subspace.correlation,
            info["count"],
            info["norm_sum"],
            unit_norm=detector.correlation.unit_norm,
            sample=RowSample.from_arrays(arrays),
        )
        detector._length = info.get("embedding_length")
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
