"""The detector on embeddings: fit on the training set's, then score, calibrate, decide, save."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pnml.backend.arrays import Array, DeviceConstants, detached, namespace, to_compute, to_numpy
from pnml.backend.read_errors import naming_file
from pnml.backend.rows import by_chunk, check_finite, check_shape, wide_dtype
from pnml.backend.state import load_state, save_state
from pnml.core import detector_state
from pnml.core.batch import Batch
from pnml.core.calibration import By, Threshold, calibrate
from pnml.core.calibration_scores import CalibrationScores, left_out_source
from pnml.core.correlation import Correlation
from pnml.core.depth import fit_geometry
from pnml.core.detector_schema import check_state
from pnml.core.float32_scorer import Float32Scorer, multiplies_in_float32
from pnml.core.joined import is_few
from pnml.core.last_layer import checked_head, head_digest
from pnml.core.model import ScoringModel
from pnml.core.result import Result
from pnml.core.rows import as_layers, check_features, check_scored, join_layers
from pnml.core.sample import Recognised
from pnml.core.scaling import EMBEDDING_SCALES, LABEL_NOISE, EmbeddingScale, balanced_scales
from pnml.core.scorer import Float64Scorer
from pnml.core.subspace import Subspace

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from typing_extensions import Self

    from pnml.core.depth import Geometry

Task = Literal["multiclass", "multilabel"]
"""Whether one of the classes is right, or each of several labels may be."""

_LOG = logging.getLogger("pnml")


class FewRowsWarning(UserWarning):
    """With the paper's leverage: no more training rows than features, so that nearly every new row counts as unseen."""


class ZeroEmbeddingWarning(UserWarning):
    """Some training rows have norm 0, cannot be scaled to norm 1, and were left out of the fit."""


class Detector:
    """Out-of-distribution detector for any softmax classifier, given its last layer and its training embeddings.

    Scores are pNML regrets in nats: larger = less trustworthy. Fitting is one streaming pass in O(M²) memory, needs no
    labels and no out-of-distribution data, and has nothing to tune. Features of earlier layers of the network, if there
    are any, make it see samples that the last layer takes for known ones: pass them as ``features`` to every method.

    Args:
        weight: the last linear layer's weight, shape (C, M).
        bias: its bias, shape (C,); zeros when left out.
        embedding_scale: "auto" scales every embedding to one norm, chosen from the training set so that near- and
            far-OOD are detected, assumes 0.5 % of labels are random, and measures leverage about the mean of the
            predicted class; "paper" scales to norm 1, which reproduces the paper's numbers; "natural" leaves embeddings
            as they are.

    Attributes:
        threshold: the calibrated :class:`~pnml.core.calibration.Threshold`, None before :meth:`calibrate`.
        layer_names: of the earlier layers whose features are used.
        preparation: how the inputs of the model are prepared, JSON-able; ``pnml fit`` sets it, and ``save`` keeps it.
            None where nobody said.
        model_fingerprint: of the weights of the model that was fitted, where a model was; empty otherwise.
        head_notes: what is particular about the last layer, in words; empty for a plain linear layer.
        task: "multiclass", or "multilabel" for a :class:`~pnml.core.multilabel.MultiLabelDetector`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> train = rng.normal(size=(500, 8)) @ np.diag([3, 3, 3, 3, 0.01, 0.01, 0.01, 0.01])
    >>> detector = Detector(rng.normal(size=(4, 8)), np.zeros(4)).fit(train)
    >>> seen, unseen = train[:1], np.eye(8)[7:]
    >>> bool(detector.score(unseen)[0] > detector.score(seen)[0])
    True
    """

    task: Task = "multiclass"

    def __init__(self, weight: Array, bias: Array | None = None, *, embedding_scale: EmbeddingScale = "auto") -> None:
        self.weight, self.bias = checked_head(weight, bias)
        if embedding_scale not in EMBEDDING_SCALES:
            raise ValueError(f"embedding_scale must be one of {EMBEDDING_SCALES}, got {embedding_scale!r}")
        self.embedding_scale = embedding_scale
        self.threshold: Threshold | None = None
        self.layer_names: tuple[str, ...] = ()
        self.preparation: dict[str, Any] | None = None
        self.model_fingerprint: dict[str, str] = {}
        self.head_notes: tuple[str, ...] = ()
        self.correlation = self._empty_correlation()
        self._geometry: Geometry | None = None
        self._subspace: Subspace | None = None
        self._scales: tuple[float, float, float] | None = None
        self._scorers: tuple[Float64Scorer, Float32Scorer | None] | None = None

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
        """A fingerprint of the last layer, to recognise a detector that was fitted for another one."""
        return head_digest(self.weight, self.bias)

    @property
    def feature_widths(self) -> tuple[int, ...]:
        """The widths of the features of earlier layers."""
        return (self.correlation.widths or (0,))[1:]

    @property
    def subspace(self) -> Subspace:
        """The span of the training embeddings, decomposed when first asked for."""
        if self._subspace is None:
            self._check_fitted()
            self._subspace = Subspace.fit(self.correlation)
        return self._subspace

    @property
    def geometry(self) -> Geometry | None:
        """The scatter of every layer about the means of the classes; None for the leverage of the paper."""
        if self._geometry is None and self.correlation.n_classes:
            self._check_fitted()
            self._geometry = fit_geometry(self.correlation)
        return self._geometry

    def _check_fitted(self) -> None:
        count, left_out = self.correlation.count, self.correlation.left_out
        if count == 0:
            empty = f": all {left_out} training rows have norm 0" if left_out else ""
            raise ValueError(f"the detector is not fitted: call fit(training_embeddings) first{empty}")
        if left_out:
            message = f"{left_out} of {count + left_out} training rows have norm 0 and no direction: left out"
            warnings.warn(message, ZeroEmbeddingWarning, stacklevel=4)
        if count <= self.n_features and not self.correlation.n_classes:
            message = (
                f"{count} training rows for {self.n_features} features span so little that nearly every new row counts "
                'as unseen, whatever it is: fit on more rows, or take embedding_scale="auto"'
            )
            warnings.warn(message, FewRowsWarning, stacklevel=4)

    @property
    def embedding_length(self) -> float:
        """The norm that embeddings get for the model's probabilities p: 1, but for "auto"."""
        return self._all_scales[0]

    @property
    def bias_scale(self) -> float:
        """The factor of the bias for these p: 1, but for "auto", where it shrinks along with the embeddings."""
        return self._all_scales[1]

    @property
    def label_noise(self) -> float:
        """The share of labels assumed to be random, so that no p is certain: 0, but for "auto"."""
        return self._all_scales[2]

    @property
    def _all_scales(self) -> tuple[float, float, float]:
        if self._scales is None:
            if self.embedding_scale != "auto":
                return 1.0, 1.0, 0.0
            if self.correlation.count == 0:
                self._check_fitted()
            self._scales = *balanced_scales(self.correlation, self.weight, self.bias), LABEL_NOISE
        return self._scales

    @property
    def scaled_head(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Weight (C, M) and bias (C,) of the logits of an embedding of norm 1 at its length."""
        return self.weight * self.embedding_length, self.bias * self.bias_scale

    @property
    def model(self) -> ScoringModel:
        """Everything that regrets are computed from, as one immutable object."""
        return self._fitted_scorers[0].model

    @property
    def exact_scorer(self) -> Float64Scorer:
        """What computes regrets in float64."""
        return self._fitted_scorers[0]

    @property
    def _fitted_scorers(self) -> tuple[Float64Scorer, Float32Scorer | None]:
        """The scorers in float64 and in float32, the latter None where float32 is not accurate enough."""
        if self._scorers is None:
            unit_norm, geometry = self.embedding_scale != "natural", self.geometry
            subspace = self.subspace if geometry is None else geometry.depth.embedding.subspace
            depth = None if geometry is None else geometry.depth
            model = ScoringModel(self.weight, self.bias, subspace, unit_norm, *self._all_scales, depth)
            fast = Float32Scorer(model)
            if not fast.is_accurate:
                _LOG.info("scoring in float64: typical error of float32 would be %.1g", fast.typical_error)
            self._scorers = Float64Scorer(model), fast if fast.is_accurate else None
        return self._scorers

    def fit(self, embeddings: Array, *, features: Sequence[Array] | None = None, labels: Array | None = None) -> Self:
        """Learn from the training set, forgetting what was fitted before.

        Args:
            embeddings: shape (N, M).
            features: of earlier layers, one array of shape (N, features of that layer) for each.
            labels: the true classes, shape (N,); the predicted ones when left out.
        """
        fresh = type(self)(self.weight, self.bias, embedding_scale=self.embedding_scale)
        fresh.layer_names = self.layer_names
        fresh.partial_fit(embeddings, features=features, labels=labels)
        self.correlation, self.layer_names = self._empty_correlation(), fresh.layer_names
        return self.merge(fresh.correlation)

    def partial_fit(
        self, embeddings: Array, *, features: Sequence[Array] | None = None, labels: Array | None = None
    ) -> Self:
        """Add a batch of training samples, as :meth:`fit` takes them; a threshold set before is dropped."""
        layers = as_layers(features)
        rows = join_layers(check_shape(embeddings, self.n_features), layers)
        if layers:
            self._accept_layers([int(layer.shape[1]) for layer in layers])
        elif self.feature_widths:
            check_features((), self.feature_widths)
        classes = None
        if self.correlation.n_classes:
            classes = self._predict(rows) if labels is None else labels
        self.correlation.update(rows, classes)
        self._forget()
        return self

    def _accept_layers(self, widths: Sequence[int]) -> None:
        """Learn how many features earlier layers have, or check it."""
        if self.correlation.count or self.correlation.left_out or not widths:
            check_features(widths, self.feature_widths)
        elif self.embedding_scale != "auto":
            raise ValueError(f'features of earlier layers need embedding_scale="auto", got {self.embedding_scale!r}')
        else:
            self.correlation = self._empty_correlation(widths)
        if len(self.layer_names) != len(widths):
            self.layer_names = tuple(f"layer{number}" for number in range(len(widths)))

    def _predict(self, rows: Array) -> Array:
        """Return the class that the last layer gives to rows, shape (n,)."""
        rows = to_compute(detached(rows))[:, : self.n_features]
        if not rows.shape[0]:
            return []
        dtype = wide_dtype(rows)
        head = DeviceConstants(self.weight.T, self.bias).to(rows, dtype)
        return by_chunk(_most_likely, rows, dtype, *head, width=max(self.weight.shape))

    def _empty_correlation(self, feature_widths: Sequence[int] = ()) -> Correlation:
        n_classes = self.n_classes if self.embedding_scale == "auto" else 0
        unit_norm = self.embedding_scale != "natural"
        return Correlation((self.n_features, *feature_widths), unit_norm=unit_norm, n_classes=n_classes)

    def merge(self, correlation: Correlation) -> Self:
        """Add the statistic of further training rows, fitted elsewhere; a threshold set before is dropped."""
        widths = correlation.widths or (self.n_features,)
        if not self.correlation.count and widths[0] == self.n_features:
            self._accept_layers(widths[1:])
        self.correlation = self.correlation + correlation
        self._forget()
        return self

    def _forget(self) -> None:
        """Drop everything that was computed from the statistic."""
        self._geometry = self._subspace = self._scales = self._scorers = self.threshold = None

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

    def _result(self, batch: Batch, regret: Array, logits: Array | None) -> Result:
        return Result(batch, batch.finish(regret), self._fitted_scorers[0], self.threshold, logits)

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
        xp = namespace(rows)
        if exact.model.depth is not None and is_few(rows):  # float64 without a look at a value, which would be to wait
            return exact.of_few(rows)
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
        regret = self._fitted_scorers[0].regret(rows, eps, as_if_unseen=True)
        if not bool(namespace(rows).isfinite(regret).all()):
            check_finite(rows)
        return regret

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted detector, and its threshold if set, to a safetensors file."""
        arrays, info = detector_state.to_state(self)
        check_state(arrays, info)
        save_state(path, detector_state.KIND, detector_state.VERSION, arrays, info)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Detector:
        """Read a detector written by :meth:`save`."""
        with naming_file(path):
            return cls._load(path)

    @classmethod
    def _load(cls, path: str | os.PathLike[str]) -> Detector:
        arrays, info = load_state(
            path, detector_state.KIND, detector_state.VERSION, digest_since=detector_state.DIGEST_SINCE
        )
        try:
            check_state(arrays, info)
            if info.get("task", "multiclass") == cls.task:
                return cls._restored(arrays, info)
        except ValueError as error:
            raise ValueError(f"{path} holds no detector that can be used: {error}: fit the detector again") from error
        return cls._of_task(info["task"]).load(path)

    @classmethod
    def _restored(cls, arrays: dict[str, np.ndarray[Any, Any]], info: dict[str, Any]) -> Detector:
        detector = cls(arrays["weight"], arrays["bias"], embedding_scale=info["embedding_scale"])
        detector.head_notes = tuple(info.get("head_notes", ()))
        state = detector_state.from_state(arrays, info)
        detector.correlation, detector._geometry, detector._subspace = state.correlation, state.geometry, state.subspace
        detector.layer_names, detector._scales, detector.threshold = state.layer_names, state.scales, state.threshold
        detector.preparation = state.preparation
        detector.model_fingerprint = info.get("model_fingerprint", {})
        return detector

    @staticmethod
    def _of_task(task: Task) -> type[Detector]:
        """Return the class of detectors for a task."""
        from pnml.core.multilabel import MultiLabelDetector

        return MultiLabelDetector if task == "multilabel" else Detector


def _most_likely(x: Array, weight: Array, bias: Array) -> Array:
    return namespace(x).argmax(x @ weight + bias, axis=-1)
