"""The detector on embeddings: fit on the training set's, then score, calibrate, decide, save."""

from __future__ import annotations

import logging
import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pnml.backend.arrays import Array, DeviceConstants, detached, is_remote, namespace, to_compute, to_numpy
from pnml.backend.read_errors import naming_file
from pnml.backend.rows import by_chunk, check_finite, check_shape, wide_dtype
from pnml.backend.state import load_state, save_state
from pnml.core import detector_state
from pnml.core.batch import Batch
from pnml.core.calibration import By, Threshold, calibrate
from pnml.core.calibration_scores import CalibrationScores, left_out_source
from pnml.core.correlation import Correlation
from pnml.core.geometry import Geometry
from pnml.core.last_layer import checked_head, head_digest
from pnml.core.layout import LENGTHS, UNSCALED
from pnml.core.model import ScoringModel
from pnml.core.result import Result
from pnml.core.rows import as_layers, check_features, check_names, check_scored, checked_logits, join_layers
from pnml.core.sample import Recognised, RowSample
from pnml.core.scaling import LABEL_NOISE, EmbeddingScale, Scales, balanced_scales, check_embedding_scale
from pnml.core.scorer import LARGEST_ERROR, Scorer, single_error
from pnml.core.subspace import Subspace, eigenvalue_tolerance

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from typing_extensions import Self

_LOG = logging.getLogger("pnml")

Task = Literal["multiclass", "multilabel"]
"""Whether one of the classes is right, or each of several labels may be."""


class FewRowsWarning(UserWarning):
    """With the paper's leverage: no more training rows than features, so that nearly every new row counts as unseen."""


class ZeroEmbeddingWarning(UserWarning):
    """Some training rows have norm 0, cannot be scaled to norm 1, and were left out of the fit."""


class Detector:
    """Out-of-distribution detector for any softmax classifier, given its last layer and its training embeddings.

    Scores are pNML regrets in nats: larger = less trustworthy. Fitting is one streaming pass in O(M²) memory, needs no
    labels and no out-of-distribution data, and has nothing to tune. Features of earlier layers of the network, if there
    are any, make it see samples that the last layer takes for known ones: pass them as ``features`` to every method.

    It is made of three parts: the statistic of the training rows (``correlation``), the scorer that is made of it when
    it is first needed, and a threshold.

    Args:
        weight: the last linear layer's weight, shape (C, M).
        bias: its bias, shape (C,); zeros when left out.
        embedding_scale: "auto" scales every embedding to one norm, chosen from the training set so that near- and
            far-OOD are detected, assumes 0.5 % of labels are random, and measures leverage about the mean of the
            predicted class; "paper" scales to norm 1, which reproduces the paper's numbers; "natural" leaves embeddings
            as they are.
        input_layer: whether the last of the features is the input of the model itself, a vector, which is watched as it
            comes, too, not only scaled to norm 1.

    Attributes:
        threshold: the calibrated :class:`~pnml.core.calibration.Threshold`, None before :meth:`calibrate`.
        layer_names: of the earlier layers whose features are used, set before :meth:`fit` or after it.
        preparation: how the inputs of the model are prepared, JSON-able; ``pnml fit`` sets it, and ``save`` keeps it.
            None where nobody said.
        model_fingerprint: of the weights of the model that was fitted, where a model was; empty otherwise.
        head_notes: what is particular about the last layer, in words; empty for a plain linear layer.
        reading: how a guard reads its model, JSON-able; None where no guard was.
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

    def __init__(
        self,
        weight: Array,
        bias: Array | None = None,
        *,
        embedding_scale: EmbeddingScale = "auto",
        input_layer: bool = False,
    ) -> None:
        self.weight, self.bias = checked_head(weight, bias)
        check_embedding_scale(embedding_scale)
        self.embedding_scale: EmbeddingScale = embedding_scale
        self.input_layer = input_layer
        self.threshold: Threshold | None = None
        self.preparation: dict[str, Any] | None = None
        self.model_fingerprint: dict[str, str] = {}
        self.head_notes: tuple[str, ...] = ()
        self.reading: dict[str, Any] | None = None
        self._layer_names: tuple[str, ...] = ()
        self._correlation: Correlation | None = self._empty_correlation()
        self._loaded: detector_state.Loaded | None = None
        self._scorer: Scorer | None = None
        self._subspace: Subspace | None = None

    def __repr__(self) -> str:
        layers = f", layers {list(self.layer_names)}" if self.layer_names else ""
        sizes = f"{self.n_features} features to {self.n_classes} classes"
        return f"{type(self).__name__}({sizes}, scale {self.embedding_scale}{layers}, {self.described_state})"

    @property
    def described_state(self) -> str:
        """How many samples it was fitted on and whether it is calibrated, in words."""
        if not self.count:
            return "not fitted"
        calibrated = "not calibrated" if self.threshold is None else f"calibrated: {self.threshold}"
        return f"fitted on {self.count:,} samples, {calibrated}"

    # What it has learned.

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
    def correlation(self) -> Correlation:
        """The statistic of the training rows; a detector that was loaded holds none."""
        if self._correlation is None:
            raise ValueError(
                "a detector that was loaded scores, and holds no sums of its training rows: to add rows later, save "
                "the sums before, detector.correlation.save(path)"
            )
        return self._correlation

    @property
    def count(self) -> int:
        """How many training rows it was fitted on."""
        return self._facts.count

    @property
    def left_out(self) -> int:
        """How many training rows had norm 0 and were left out."""
        return self._facts.left_out

    @property
    def mean_norm(self) -> float:
        """The mean Euclidean norm of the training embeddings as they came."""
        return self._facts.norm_sum / max(1, self._facts.count)

    @property
    def _facts(self) -> Correlation | detector_state.Loaded:
        facts = self._correlation if self._loaded is None else self._loaded
        assert facts is not None  # noqa: S101 - one of both is there
        return facts

    @property
    def feature_widths(self) -> tuple[int, ...]:
        """The widths of the features of earlier layers."""
        return (self._facts.widths or (0,))[1:]

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The names of the earlier layers, one for the features of each: "layer0", ... if none were given."""
        return self._layer_names or tuple(f"layer{number}" for number in range(len(self.feature_widths)))

    @layer_names.setter
    def layer_names(self, names: Sequence[str]) -> None:
        check_names(names, len(self.feature_widths) if self._has_seen_rows else None)
        self._layer_names = tuple(names)

    @property
    def block_names(self) -> tuple[str, ...]:
        """What ``Result.leverage_by_layer`` has a column for: the embedding, the layers, the lengths of all.

        An input has two: scaled to norm 1 as all layers, and unscaled.
        """
        if not self.layer_names:
            return ("embedding",)
        unscaled = [f"{self.layer_names[-1]} {UNSCALED}"] if self.input_layer else []
        return ("embedding", *self.layer_names, *unscaled, LENGTHS)

    @property
    def watched_names(self) -> tuple[str, ...]:
        """What ``Result.strangest_layer`` numbers from 1: the layers and the lengths; nothing without layers."""
        return self.block_names[1:]

    @property
    def rank(self) -> int:
        """How many directions the training embeddings span, of those that have a leverage."""
        return int((self.spectrum > eigenvalue_tolerance(self.spectrum)).sum())

    @property
    def _has_seen_rows(self) -> bool:
        return bool(self.count or self.left_out)

    @property
    def subspace(self) -> Subspace:
        """The span of the training embeddings, decomposed when first asked for; of "auto" before it is saved."""
        if self._subspace is None:
            self._check_fitted()
            self._subspace = Subspace.fit(self.correlation)
        return self._subspace

    @property
    def spectrum(self) -> np.ndarray[Any, Any]:
        """The eigenvalues of the mean correlation of the training embeddings, descending."""
        return self.subspace.spectrum if self._loaded is None else self._loaded.spectrum

    @property
    def embedding_length(self) -> float:
        """The norm that embeddings get for the model's probabilities p; 1 unless embedding_scale is "auto"."""
        return self.model.length

    @property
    def bias_scale(self) -> float:
        """The factor of the bias for these p: "auto" scales it along with the embeddings; 1 otherwise."""
        return self.model.bias_scale

    @property
    def label_noise(self) -> float:
        """The share of labels assumed to be random, so that no p is certain; 0 unless embedding_scale is "auto"."""
        return self.model.label_noise

    @property
    def model(self) -> ScoringModel:
        """Everything that regrets are computed from, as one immutable object."""
        return self.scorer.model

    @property
    def precision(self) -> str:
        """In what rows of float32 are scored: "float32", or "float64" where float32 would be off by 0.03 % or more."""
        return "float32" if self.scorer.single else "float64"

    @property
    def scorer(self) -> Scorer:
        """What computes regrets; made of the statistic when it is first needed."""
        if self._scorer is None:
            self._check_fitted()
            self._scorer = self._new_scorer()
        return self._scorer

    def _new_scorer(self) -> Scorer:
        statistic = self.correlation
        if self.embedding_scale == "auto":
            geometry = Geometry.fit(statistic)
            model = ScoringModel(
                self.weight, self.bias, statistic.layout, None, geometry, *self._balanced_scales(), LABEL_NOISE
            )
        else:
            model = ScoringModel(self.weight, self.bias, statistic.layout, self.subspace)
        sample = statistic.sample
        if sample is None or sample.rows.dtype.itemsize > 4:
            return Scorer(model)
        error = single_error(model, sample.numpy())
        if error > LARGEST_ERROR:
            _LOG.info("scoring in float64: regrets in float32 would be off by up to %.1g", error)
            return Scorer(model)
        return Scorer(model.rounded(), single=True)

    def _balanced_scales(self) -> Scales:
        return balanced_scales(self.correlation, self.weight, self.bias)

    def _check_fitted(self) -> None:
        if self.count == 0:
            empty = f": all {self.left_out} training rows have norm 0" if self.left_out else ""
            raise ValueError(f"the detector is not fitted: call fit(training_embeddings) first{empty}")
        if self._loaded is not None:
            return
        if self.left_out:
            message = (
                f"{self.left_out} of {self.count + self.left_out} training rows have norm 0 and no direction: left out"
            )
            warnings.warn(message, ZeroEmbeddingWarning, stacklevel=4)
        if self.count <= self.n_features and self.embedding_scale != "auto":
            message = (
                f"{self.count} training rows for {self.n_features} features span so little that nearly every new row "
                'counts as unseen, whatever it is: fit on more rows, or take embedding_scale="auto"'
            )
            warnings.warn(message, FewRowsWarning, stacklevel=4)

    # Learning.

    def fit(self, embeddings: Array, *, features: Sequence[Array] | None = None, labels: Array | None = None) -> Self:
        """Learn from the training set, forgetting what was fitted before.

        Args:
            embeddings: shape (N, M).
            features: of earlier layers, one array of shape (N, features of that layer) for each.
            labels: the true classes, shape (N,); the predicted ones when left out.
        """
        fresh = type(self)(self.weight, self.bias, embedding_scale=self.embedding_scale, input_layer=self.input_layer)
        if not self._has_seen_rows:
            fresh.layer_names = self._layer_names
        fresh.partial_fit(embeddings, features=features, labels=labels)
        if len(self._layer_names) != len(fresh.feature_widths):
            self._layer_names = ()
        self._correlation = fresh.correlation
        self._loaded = None
        self._forget()
        return self

    def partial_fit(
        self, embeddings: Array, *, features: Sequence[Array] | None = None, labels: Array | None = None
    ) -> Self:
        """Add a batch of training samples, as :meth:`fit` takes them; a threshold set before is dropped."""
        layers = as_layers(features)
        rows = join_layers(check_shape(embeddings, self.n_features), layers)
        correlation = self.correlation
        self._accept_layers([int(layer.shape[1]) for layer in layers])
        classes = None
        if correlation.n_classes:
            classes = self._predict(rows) if labels is None else labels
        try:
            self.correlation.update(rows, classes)
        except ValueError:
            check_finite(rows, (self.n_features, *self.feature_widths))  # which names the layer
            raise
        self._forget()
        return self

    def merge(self, correlation: Correlation) -> Self:
        """Add the statistic of further training rows, fitted elsewhere; a threshold set before is dropped."""
        widths = correlation.widths or (self.n_features,)
        if not self.correlation.count and widths[0] == self.n_features:
            self._accept_layers(widths[1:])
        self._correlation = self.correlation + correlation
        self._forget()
        return self

    def _accept_layers(self, widths: Sequence[int]) -> None:
        """Learn how many features earlier layers have, or check it."""
        if self._layer_names and not self._has_seen_rows:
            check_names(self._layer_names, len(widths))
        if self._has_seen_rows or not widths:
            check_features(widths, self.feature_widths)
        elif self.embedding_scale != "auto":
            raise ValueError(f'features of earlier layers need embedding_scale="auto", got {self.embedding_scale!r}')
        else:
            self._correlation = self._empty_correlation(widths)
        if self.input_layer and not widths:
            raise ValueError("input_layer=True says that the last of the features is the input, and there are none")

    def _empty_correlation(self, feature_widths: Sequence[int] = ()) -> Correlation:
        return Correlation(
            (self.n_features, *feature_widths),
            unit_norm=self.embedding_scale != "natural",
            n_classes=self.n_classes if self.embedding_scale == "auto" else 0,
            input_layer=self.input_layer,
        )

    def _forget(self) -> None:
        """Drop everything that was computed from the statistic."""
        self._subspace = None
        self._scorer = None
        self.threshold = None

    @cached_property
    def _centred_head(self) -> DeviceConstants:
        """Transposed weight (M, C) and bias (C,) less what all classes have in common."""
        return DeviceConstants((self.weight - self.weight.mean(axis=0)).T, self.bias - self.bias.mean())

    def _predict(self, rows: Array) -> Array:
        """Return the class that the last layer gives to rows, shape (n,)."""
        rows = to_compute(detached(rows))[:, : self.n_features]
        xp = namespace(rows)
        dtype = xp.float32 if rows.dtype == xp.float32 else wide_dtype(rows)
        return by_chunk(_most_likely, rows, dtype, *self._centred_head.to(rows, dtype), width=max(self.weight.shape))

    # Scoring.

    def __call__(
        self, embeddings: Array, *, features: Sequence[Array] | None = None, logits: Array | None = None
    ) -> Result:
        """Return predictions, probabilities, regret and, once calibrated, p-values and decisions.

        Args:
            embeddings: of any array library, shape (n, M).
            features: of earlier layers, if the detector was fitted with them.
            logits: the model's own logits, shape (n, C), where they are known; computed from the embeddings otherwise.
        """
        return self._result(self._batch(embeddings, features, logits))

    def of_rows(self, rows: Array, logits: Array) -> Result:
        """Return what a call returns, given embeddings and features side by side, (n, M of all layers), and logits."""
        return self._result(Batch(check_shape(rows, sum(self._facts.widths or ())), self._checked_logits(logits, rows)))

    def score(
        self,
        embeddings: Array,
        *,
        features: Sequence[Array] | None = None,
        logits: Array | None = None,
        leave_one_out: bool = False,
    ) -> Array:
        """Return the regret in nats, shape (n,): larger = less trustworthy; NaN for rows that are not finite.

        Embeddings in float64 are scored in float64, those in float32 or less as :attr:`precision` says.

        Args:
            embeddings: of any array library, shape (n, M).
            features: of earlier layers, if the detector was fitted with them.
            logits: the model's own logits, shape (n, C), where they are known.
            leave_one_out: the embeddings *are* training rows; score each as if it had not been fitted on.
        """
        batch = self._batch(embeddings, features, logits)
        return batch.convert(batch.finish(self._regret(batch, leave_one_out=leave_one_out)))

    def predict_proba(self, embeddings: Array, *, features: Sequence[Array] | None = None) -> Array:
        """Return the pNML probabilities q, shape (n, C)."""
        return self(embeddings, features=features).pnml_probabilities

    def predict(self, embeddings: Array) -> Array:
        """Return the model's most probable class, shape (n,)."""
        batch = Batch(check_shape(embeddings, self.n_features))
        return batch.convert(self._predict(batch.rows))

    def _batch(self, embeddings: Array, features: Sequence[Array] | None, logits: Array | None = None) -> Batch:
        rows = check_shape(embeddings, self.n_features)
        if features is not None or len(self._facts.widths or ()) > 1:
            layers = as_layers(features)
            if not self.count:
                self._check_fitted()
            check_features([int(layer.shape[1]) for layer in layers], self.feature_widths)
            rows = join_layers(rows, layers)
        return Batch(rows, self._checked_logits(logits, rows))

    def _checked_logits(self, logits: Array | None, rows: Array) -> Array | None:
        return None if logits is None else checked_logits(logits, rows.shape[0], self.n_classes)

    def _result(self, batch: Batch) -> Result:
        if is_remote(batch.rows):
            result = Result(batch, batch.finish(self._regret(batch)), self.scorer, self.threshold)
        else:
            regret, xtg = self.scorer.regret_and_xtg(batch.rows, batch.logits)
            result = Result(batch, batch.finish(regret), self.scorer, self.threshold)
            result.xtg = batch.convert(batch.finish(xtg))
        if self.threshold is not None and self.threshold.by is None and is_remote(batch.rows):
            _ = result.is_ood  # asked for while the GPU is at work: whoever reads it then waits for nothing else
        return result

    def _regret(self, batch: Batch, *, leave_one_out: bool = False) -> Array:
        """Return the regrets of a batch, or of training rows, each as if it had not been fitted on."""
        regret = self.scorer.regret(batch.rows, batch.logits, as_if_unseen=leave_one_out)
        if leave_one_out and not bool(namespace(regret).all(namespace(regret).isfinite(regret))):
            check_finite(batch.rows, (self.n_features, *self.feature_widths))
        return regret

    # Deciding.

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
        batch = self._batch(embeddings, features, logits)
        scores = batch.finish(self._regret(batch, leave_one_out=leave_one_out))
        check_scored(scores, embeddings, features)
        recognised = Recognised()
        if self._sample is not None and not leave_one_out:
            recognised = self._sample.recognise(batch.rows, width=self.n_features)
        return CalibrationScores(
            to_numpy(scores),
            self._calibrated_classes(batch),
            self.n_classes,
            leave_one_out,
            recognised,
            self._repeated if leave_one_out else 0.0,
        )

    def _calibrated_classes(self, batch: Batch) -> np.ndarray[Any, Any]:
        """Return the predicted classes of a batch, for thresholds by class."""
        logits = self._predict(batch.rows) if batch.logits is None else namespace(batch.logits).argmax(batch.logits, -1)
        return to_numpy(logits, np.int64)

    @property
    def _sample(self) -> RowSample | None:
        return self._facts.sample

    @property
    def sample_keys(self) -> np.ndarray[Any, Any]:
        """The keys of the training rows that are sampled, by which they are recognised, shape (k,)."""
        assert self._sample is not None  # noqa: S101 - of a fitted detector
        return to_numpy(self._sample.keys, np.int64)

    @property
    def _repeated(self) -> float:
        """The share of training rows that have copies; 0 where it is not known."""
        return 0.0 if self._sample is None else self._sample.repeated

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

    # Storing.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted detector, and its threshold if set, to a safetensors file.

        It holds what scores are computed from, and no training rows: a detector that is loaded cannot be fitted
        further. :meth:`Correlation.save` writes the sums that can.
        """
        save_state(path, detector_state.KIND, detector_state.VERSION, *detector_state.to_state(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Detector:
        """Read a detector written by :meth:`save`."""
        with naming_file(path):
            arrays, info = load_state(path, detector_state.KIND, detector_state.VERSION)
            try:
                loaded = detector_state.from_state(arrays, info)
            except ValueError as error:
                raise ValueError(
                    f"{path} holds no detector that can be used: {error}: fit the detector again"
                ) from error
            return cls._restored(loaded)

    @classmethod
    def _restored(cls, loaded: detector_state.Loaded) -> Detector:
        from pnml.core.multilabel import MultiLabelDetector

        kind = MultiLabelDetector if loaded.task == "multilabel" else Detector
        model = loaded.scorer.model
        detector = kind(
            model.weight, model.bias, embedding_scale=loaded.embedding_scale, input_layer=model.layout.input_layer
        )
        return detector._with(loaded)  # noqa: SLF001 - of this class

    def _with(self, loaded: detector_state.Loaded) -> Detector:
        """Take what was loaded for what was fitted."""
        self._correlation = None
        self._loaded = loaded
        self._scorer = loaded.scorer
        self._subspace = loaded.scorer.model.subspace
        self._layer_names = loaded.layer_names
        self.threshold = loaded.threshold
        self.preparation = loaded.preparation
        self.model_fingerprint = loaded.model_fingerprint
        self.head_notes = loaded.head_notes
        self.reading = loaded.reading
        return self


def _most_likely(x: Array, weight: Array, bias: Array) -> Array:
    return namespace(x).argmax(x @ weight + bias, axis=-1)
