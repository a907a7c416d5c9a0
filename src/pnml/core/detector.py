"""The detector on embeddings: fit on the training set's, then score, calibrate, decide, save."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import array_api_compat as compat

from pnml.backend.arrays import Array, DeviceConstants, working_dtype
from pnml.backend.rows import check_finite, check_shape
from pnml.backend.state import load_state, save_state
from pnml.core.calibration import Threshold, calibrate
from pnml.core.correlation import Correlation
from pnml.core.last_layer import checked_head, head_digest
from pnml.core.quick import Quick
from pnml.core.result import Result
from pnml.core.sample import RowSample
from pnml.core.scaling import EMBEDDING_SCALES, LABEL_NOISE, EmbeddingScale, balanced_scales
from pnml.core.scoring import assess, by_batch, compiling, regret
from pnml.core.subspace import Subspace

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    import numpy as np

__all__ = ["Detector", "FewRowsWarning", "Precision", "assess", "head_digest"]

Precision = Literal["float64", "float32", "float16"]
"""``"float64"``: exact to rounding. ``"float32"``: quick, and exact wherever float32 might be off by more than 1 %.
``"float16"``: quicker on a GPU, and exact wherever roundings that do not conspire might add up to more than 1 %."""

_KIND, _VERSION = "pnml.detector", 1
_SCORERS: dict[str, tuple[type[Quick], ...]] = {"float64": (), "float32": (Quick,), "float16": (Quick,)}


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
            about the training set, never believes it entirely, and sees near- and far-OOD; "paper" scales to norm 1,
            which reproduces the paper's numbers; "natural" leaves embeddings as they are.

    Attributes:
        threshold: the calibrated :class:`~pnml.core.calibration.Threshold`, None before :meth:`calibrate`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> train = rng.normal(size=(500, 8)) @ np.diag([3, 3, 3, 3, 0.01, 0.01, 0.01, 0.01])
    >>> detector = Detector(rng.normal(size=(4, 8)), np.zeros(4)).fit(train)
    >>> seen, unseen = train[:1], np.eye(8)[7:]
    >>> bool(detector.score(unseen)[0] > detector.score(seen)[0])
    True
    """

    def __init__(self, weight: Array, bias: Array | None = None, *, embedding_scale: EmbeddingScale = "auto") -> None:
        self.weight, self.bias = checked_head(weight, bias)
        if embedding_scale not in EMBEDDING_SCALES:
            raise ValueError(f"embedding_scale must be one of {EMBEDDING_SCALES}, got {embedding_scale!r}")
        self.embedding_scale = embedding_scale
        self.threshold: Threshold | None = None
        self.correlation = self._empty_correlation()
        self._subspace: Subspace | None = None
        self._scorers: dict[type, Quick] = {}
        self._scales: tuple[float, float, float] | None = None
        self._placed_head: DeviceConstants | None = None

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
        return self._all_scales[0]

    @property
    def bias_scale(self) -> float:
        """What the bias is multiplied by for that p: 1, but for "auto", where it shrinks along with the embeddings."""
        return self._all_scales[1]

    @property
    def label_noise(self) -> float:
        """The share of labels taken to be drawn at random, so that no p is certain: 0, but for "auto"."""
        return self._all_scales[2]

    @property
    def _all_scales(self) -> tuple[float, float, float]:
        if self._scales is None:
            if self.embedding_scale != "auto":
                return 1.0, 1.0, 0.0
            _ = self.subspace  # says what is missing if nothing was fitted
            self._scales = *balanced_scales(self.correlation, self.weight, self.bias), LABEL_NOISE
        return self._scales

    @property
    def scaled_head(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Weight (C, M) and bias (C,) that give the logits of an embedding of norm 1 at its length."""
        return self.weight * self.embedding_length, self.bias * self.bias_scale

    @property
    def _head(self) -> DeviceConstants:
        if self._placed_head is None:
            weight, bias = self.scaled_head
            self._placed_head = DeviceConstants(weight.T, bias)
        return self._placed_head

    def _scorer(self, x: Array, precision: Precision) -> Quick | None:
        for kind in _SCORERS[precision]:
            if kind not in self._scorers or self._scorers[kind].subspace is not self.subspace:
                self._scorers[kind] = kind(
                    *self.scaled_head, self.subspace, self.embedding_scale, label_noise=self.label_noise
                )
            if self._scorers[kind].suits(x):
                return self._scorers[kind]
        return None

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
        self._subspace = self._scales = self._placed_head = self.threshold = None
        return self

    def __call__(self, embeddings: Array) -> Result:
        """Say everything about embeddings of shape (n, M)."""
        x = self._batch(embeddings)
        logits, p, q, t, gamma = self._exactly(
            x, partial(assess, length=self.embedding_length, bias_scale=self.bias_scale)
        )
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
                all, as are leave-one-out regrets. "float16" is one kernel for NVIDIA GPUs, several times as fast, whose
                first call takes some seconds: every regret whose error is *estimated* above 1 % goes to float64. It is
                "float32" for other arrays, over 256 classes, and training rows that do not span all features.
            compiled: let ``torch.compile`` fuse the work on PyTorch tensors; the kernel of "float16" needs none. Its
                first call takes up to a minute: worth it on a GPU, for many millions of embeddings.
        """
        if precision not in get_args(Precision):
            raise ValueError(f"precision must be one of {get_args(Precision)}, got {precision!r}")
        x = self._batch(embeddings)
        if compiled and not compat.is_torch_array(x):
            raise ValueError(f"compiled=True is for PyTorch tensors, got {type(x).__name__}")
        if not leave_one_out and (scorer := self._scorer(x, precision)):
            return self._quickly(x, scorer, compiled=compiled)
        with compiling(regret) if compiled else nullcontext(regret) as function:
            return self._exactly(x, function, leave_one_out=leave_one_out)[0]

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

    def _exactly(self, x: Array, function: Callable[..., Any], *, leave_one_out: bool = False) -> list[Array]:
        options = {"embedding_scale": self.embedding_scale, "label_noise": self.label_noise}
        return by_batch(function, x, self._head, self.subspace, leave_one_out=leave_one_out, **options)

    def _quickly(self, x: Array, scorer: Quick, *, compiled: bool) -> Array:
        """Compute in less than float64, and again in float64 what that leaves in doubt."""
        xp = compat.array_namespace(x)
        gamma, trusted = scorer.score(x, compiled=compiled)
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
            "bias_scale": self.bias_scale,
            "label_noise": self.label_noise,
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
        if "embedding_length" in info:
            detector._scales = info["embedding_length"], info.get("bias_scale", 1.0), info.get("label_noise", 0.0)
        if info["threshold"] is not None:
            held = dict(info["threshold"], interval=tuple(info["threshold"]["interval"]))
            detector.threshold = Threshold(**held, scores=arrays["calibration_scores"])
        return detector
