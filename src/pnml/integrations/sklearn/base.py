"""What the estimators have in common: a classifier that is taken apart, and a detector fitted on its last layer."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.utils import assert_all_finite, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from pnml.backend.arrays import unmasked
from pnml.core.calibration_scores import CalibrationScores
from pnml.integrations.sklearn.inputs import checked_rows
from pnml.integrations.sklearn.last_layer import check_probabilities, take_apart, unwrapped
from pnml.integrations.sklearn.parts import FLOATS, Matrix, ModelParts
from pnml.integrations.sklearn.weights import checked_weights, counts_of, fit_arguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pnml.core.result import Result


class RegretEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Fits a classifier and a detector on what enters its last layer, and computes regrets.

    Args:
        estimator: see :class:`~pnml.PNMLClassifier`.
    """

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator

    def is_ood(self, X: Any) -> Matrix:
        """Return whether the regret of each row exceeds the threshold of :meth:`calibrate`, shape (n,)."""
        return self._field(X, "is_ood")

    def p_value(self, X: Any) -> Matrix:
        """Return the share of in-distribution rows with a regret as large as that of each row, shape (n,)."""
        return self._field(X, "p_value")

    def _fit_estimator(self, X: Any, y: Any, sample_weight: Any) -> tuple[ModelParts, Any, Matrix | None]:
        """Set ``estimator_`` and return its parts, the rows as it takes them, and the checked weights."""
        X, y = checked_rows(X), unmasked(y)
        if isinstance(unwrapped(self.estimator), Pipeline):
            if hasattr(self, "feature_names_in_"):  # of an earlier fit
                del self.feature_names_in_
            weights = checked_weights(sample_weight, X)
            self.estimator_ = self._fitted_estimator(X, y, weights)
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(self.estimator_, name):
                    setattr(self, name, getattr(self.estimator_, name))
        else:
            rows = validate_data(self, X, accept_sparse="csr", dtype=FLOATS)
            weights = checked_weights(sample_weight, rows)
            X = X if hasattr(self, "feature_names_in_") else rows  # the estimator learns the names, too
            self.estimator_ = self._fitted_estimator(X, y, weights)
        parts = take_apart(self.estimator_)
        check_probabilities(self.estimator_, parts, X)
        return parts, X, weights

    def _fitted_estimator(self, X: Any, y: Any, weights: Matrix | None) -> Any:
        """Return a clone of the estimator, fitted; without labels, or if frozen, a copy of it, which must be fitted."""
        model = LogisticRegression() if self.estimator is None else self.estimator
        if y is not None and not isinstance(model, FrozenEstimator):
            y = column_or_1d(y, warn=True)
            assert_all_finite(y, input_name="y")
            check_classification_targets(y)
            if len(classes := np.unique(y)) == 1:
                raise ValueError(f"expected at least two classes in y, got one class: {classes.tolist()[0]!r}")
            return clone(model).fit(X, y, **fit_arguments(model, weights))
        try:
            check_is_fitted(model)
        except NotFittedError as error:
            raise ValueError(
                f"this {type(self).__name__} requires y to be passed, but the target y is None, and its estimator, a "
                f"{type(model).__name__}, is not fitted: call fit(X, y) with class labels, or pass a fitted estimator"
            ) from error
        return deepcopy(model)

    def _fit_detector(self, parts: ModelParts, X: Any, weights: Matrix | None) -> None:
        self._parts = parts
        self.detector_ = parts.fit_detector(X, counts_of(weights))
        _ = self.detector_.model  # warnings are raised during the fit, and the first score is fast

    def _chunks(self, X: Any) -> Iterator[tuple[Matrix, list[Matrix]]]:
        """Return embeddings and features of rows, after checking that the estimator is fitted for them."""
        check_is_fitted(self)
        X = checked_rows(X)
        if not self._parts.transformers:  # which check their own
            X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=FLOATS)
        return self._parts.chunks(X)

    def _calibration_scores(self, X: Any, *, leave_one_out: bool) -> CalibrationScores:
        found = []
        for embeddings, features in self._chunks(X):
            scores = self.detector_.calibration_scores(embeddings, features=features, leave_one_out=leave_one_out)
            found.append(scores)
        return CalibrationScores.join(found)

    def _results(self, X: Any) -> Iterator[Result]:
        """Yield what the detector finds about rows, chunk by chunk."""
        for embeddings, features in self._chunks(X):
            yield self.detector_(embeddings, features=features)

    def _regret(self, X: Any) -> Matrix:
        return self._field(X, "regret")

    def _field(self, X: Any, name: str) -> Matrix:
        """Return a field of the :class:`~pnml.Result` of rows, shape (n, ...)."""
        check_is_fitted(self)
        if name in {"is_ood", "p_value"} and self.detector_.threshold is None:
            raise ValueError("no threshold is set: call calibrate(X_held_out, false_alarm_rate=0.05) first")
        return np.concatenate([np.asarray(getattr(result, name)) for result in self._results(X)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(LogisticRegression() if self.estimator is None else self.estimator).input_tags
        return tags
