"""What a detector has learned: the last layer, the statistic of the training rows, and all that follows from both."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

from pnml.backend.arrays import Array, DeviceConstants, detached, namespace, to_compute
from pnml.backend.rows import by_chunk, check_finite, check_shape, wide_dtype
from pnml.core.correlation import Correlation
from pnml.core.depth import fit_geometry
from pnml.core.float32_scorer import Float32Scorer
from pnml.core.last_layer import checked_head, head_digest
from pnml.core.model import ScoringModel
from pnml.core.rows import as_layers, check_features, check_names, join_layers
from pnml.core.scaling import LABEL_NOISE, EmbeddingScale, balanced_scales, check_embedding_scale
from pnml.core.scorer import Float64Scorer
from pnml.core.subspace import Subspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from typing_extensions import Self

    from pnml.core.calibration import Threshold
    from pnml.core.depth import Geometry

_LOG = logging.getLogger("pnml")


class FewRowsWarning(UserWarning):
    """With the paper's leverage: no more training rows than features, so that nearly every new row counts as unseen."""


class ZeroEmbeddingWarning(UserWarning):
    """Some training rows have norm 0, cannot be scaled to norm 1, and were left out of the fit."""


class Fitted:
    """The part of a :class:`~pnml.Detector` that is fitted; its arguments and attributes are described there."""

    def __init__(self, weight: Array, bias: Array | None = None, *, embedding_scale: EmbeddingScale = "auto") -> None:
        self.weight, self.bias = checked_head(weight, bias)
        check_embedding_scale(embedding_scale)
        self.embedding_scale = embedding_scale
        self.threshold: Threshold | None = None
        self._layer_names: tuple[str, ...] = ()
        self.preparation: dict[str, Any] | None = None
        self.model_fingerprint: dict[str, str] = {}
        self.head_notes: tuple[str, ...] = ()
        self.reading: dict[str, Any] | None = None
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
    def layer_names(self) -> tuple[str, ...]:
        """The names of the earlier layers, one for the features of each: "layer0", ... if none were given."""
        return self._layer_names or tuple(f"layer{number}" for number in range(len(self.feature_widths)))

    @layer_names.setter
    def layer_names(self, names: Sequence[str]) -> None:
        check_names(names, len(self.feature_widths) if self._has_seen_rows else None)
        self._layer_names = tuple(names)

    @property
    def _has_seen_rows(self) -> bool:
        return bool(self.correlation.count or self.correlation.left_out)

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
        """The norm that embeddings get for the model's probabilities p; 1 unless embedding_scale is "auto"."""
        return self._all_scales[0]

    @property
    def bias_scale(self) -> float:
        """The factor of the bias for these p: "auto" scales it along with the embeddings; 1 otherwise."""
        return self._all_scales[1]

    @property
    def label_noise(self) -> float:
        """The share of labels assumed to be random, so that no p is certain; 0 unless embedding_scale is "auto"."""
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
        return self.exact_scorer.model

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
        if not self._has_seen_rows:
            fresh.layer_names = self._layer_names
        fresh.partial_fit(embeddings, features=features, labels=labels)
        names = self._layer_names if len(self._layer_names) == len(fresh.feature_widths) else ()
        self.correlation, self._layer_names = self._empty_correlation(), names
        return self.merge(fresh.correlation)

    def partial_fit(
        self, embeddings: Array, *, features: Sequence[Array] | None = None, labels: Array | None = None
    ) -> Self:
        """Add a batch of training samples, as :meth:`fit` takes them; a threshold set before is dropped."""
        layers = as_layers(features)
        rows = join_layers(check_shape(embeddings, self.n_features), layers)
        self._accept_layers([int(layer.shape[1]) for layer in layers])
        classes = None
        if self.correlation.n_classes:
            classes = self._predict(rows) if labels is None else labels
        try:
            self.correlation.update(rows, classes)
        except ValueError:
            check_finite(rows, (self.n_features, *self.feature_widths))  # which names the layer
            raise
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
            self.correlation = self._empty_correlation(widths)

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


def _most_likely(x: Array, weight: Array, bias: Array) -> Array:
    return namespace(x).argmax(x @ weight + bias, axis=-1)
