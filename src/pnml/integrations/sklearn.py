"""Scikit-learn estimators: a linear classifier with pNML probabilities and regret, and an outlier detector.

The features are used as embeddings without scaling (``embedding_scale="natural"``), and the coefficients of the wrapped
model are the last layer. An intercept is treated as the weight of an additional constant feature 1. The leverage
therefore depends neither on the origin nor on the units of the features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, OutlierMixin, clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from pnml.core.detector import Detector

Matrix = np.ndarray[Any, Any]

_FLOATS = (np.float64, np.float32)


class PNMLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A linear classifier with pNML probabilities and a regret for every prediction.

    A clone of ``estimator`` is fitted and makes the predictions. Its probabilities p are the softmax of its linear
    scores; for two classes, of the pair (0, score). They equal ``predict_proba`` of ``LogisticRegression`` and
    ``LinearDiscriminantAnalysis``. Scores of one-vs-rest and margin models (``SGDClassifier``, ``RidgeClassifier``,
    ``LinearSVC``), which have other probabilities or none, are used as logits.

    Args:
        estimator: a classifier with ``coef_`` and ``intercept_`` after fitting, one row per class (a single row for two
            classes); by default ``LogisticRegression()``. Pass it explicitly to tune it in a grid search, for example
            ``estimator__C``.

    Attributes:
        classes_: the sorted labels, shape (C,).
        estimator_: the fitted clone.
        detector_: the :class:`~pnml.Detector` on the features, with the constant 1 as last feature if the model has an
            intercept.
        n_features_in_: the number of features.
        feature_names_in_: the names of the features, if the training set had any.

    >>> import numpy as np
    >>> X = np.array([[0.0, 0.0], [0.2, 0.1], [1.0, 1.1], [0.9, 1.0]])
    >>> classifier = PNMLClassifier().fit(X, ["low", "low", "high", "high"])
    >>> classifier.predict([[0.1, 0.1], [-5.0, 9.0]])
    array(['low', 'high'], dtype='<U4')
    >>> near, far = classifier.regret([[0.1, 0.1], [-5.0, 9.0]])
    >>> bool(far > near)
    True
    """

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any) -> PNMLClassifier:
        """Fit the classifier and the detector on rows X (N, M) and labels y (N,)."""
        X, y = validate_data(self, X, y, dtype=_FLOATS)
        check_classification_targets(y)
        self.estimator_ = (LogisticRegression() if self.estimator is None else clone(self.estimator)).fit(X, y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(f"expected at least two classes in y, got one class: {self.classes_[0]!r}")
        self.detector_ = Detector(_head_weight(self.estimator_, len(self.classes_)), embedding_scale="natural")
        embeddings = _embeddings(X, self.detector_)
        _check_linear(self.estimator_, self.classes_, X, embeddings @ self.detector_.weight.T)
        self.detector_.fit(embeddings)
        return self

    def predict(self, X: Any) -> Matrix:
        """Return the label predicted by the wrapped model for rows (n, M); it is also the most probable under q."""
        X = _validated(self, X)
        return np.asarray(self.estimator_.predict(X))

    def predict_proba(self, X: Any) -> Matrix:
        """Return the pNML probabilities q of rows (n, M), shape (n, C), columns as in ``classes_``."""
        X = _validated(self, X)
        return np.asarray(self.detector_.predict_proba(_embeddings(X, self.detector_)))

    def regret(self, X: Any) -> Matrix:
        """Return the regret in nats of rows (n, M), shape (n,): larger = less trustworthy, at most log C."""
        X = _validated(self, X)
        return np.asarray(self.detector_.score(_embeddings(X, self.detector_)))


class PNMLOutlierDetector(OutlierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The regret as an outlier score, with scikit-learn's signs: larger = more normal, outliers are −1.

    With labels, the regret is that of a :class:`PNMLClassifier` fitted on them. Without labels, p is uniform over two
    classes and the regret is ``log(2 / (1 + 2^(−xᵀg)))``, which increases with the leverage alone: rows are ranked by
    their Mahalanobis distance from the training mean.

    Args:
        estimator: the linear classifier for labelled data, as in :class:`PNMLClassifier`.
        contamination: the share of *training* rows to label as outliers, in (0, 0.5]; it sets ``offset_``. To set a
            threshold for new data, pass held-out regrets to :meth:`pnml.Detector.set_threshold` of ``detector_``.

    Attributes:
        offset_: the value that ``decision_function`` subtracts from ``score_samples``.
        detector_: the :class:`~pnml.Detector` on the features, as in :class:`PNMLClassifier`.
        n_features_in_: the number of features.
        feature_names_in_: the names of the features, if the training set had any.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> PNMLOutlierDetector(contamination=0.05).fit(X).predict([[0.0, 0.0], [9.0, -9.0]])
    array([ 1, -1])
    """

    def __init__(self, estimator: Any = None, *, contamination: float = 0.1) -> None:
        self.estimator = estimator
        self.contamination = contamination

    def fit(self, X: Any, y: Any = None) -> PNMLOutlierDetector:
        """Fit on rows X (N, M) and, if given, class labels y (N,)."""
        if not 0 < self.contamination <= 0.5:
            raise ValueError(
                f"contamination is {self.contamination}: expected the share of training outliers, in (0, 0.5]"
            )
        if y is None:
            X = validate_data(self, X, dtype=_FLOATS, ensure_min_samples=2)
            self.detector_ = Detector(np.zeros((2, X.shape[1] + 1)), embedding_scale="natural")
            self.detector_.fit(_embeddings(X, self.detector_))
        else:
            X, y = validate_data(self, X, y, dtype=_FLOATS)
            self.detector_ = PNMLClassifier(self.estimator).fit(X, y).detector_
        self.offset_ = float(np.quantile(self._negative_regret(X), self.contamination))
        return self

    def fit_predict(self, X: Any, y: Any = None) -> Matrix:
        """Fit and return 1 for inliers and −1 for outliers among the training rows, shape (N,)."""
        return self.fit(X, y).predict(X)

    def score_samples(self, X: Any) -> Matrix:
        """Return the negative regret in nats of rows (n, M), shape (n,): larger = more normal."""
        return self._negative_regret(_validated(self, X))

    def decision_function(self, X: Any) -> Matrix:
        """Return ``score_samples(X) − offset_``, shape (n,): negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> Matrix:
        """Return 1 for inliers and −1 for outliers, shape (n,)."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _negative_regret(self, X: Matrix) -> Matrix:
        return -np.asarray(self.detector_.score(_embeddings(X, self.detector_)), dtype=np.float64)


def _validated(estimator: Any, X: Any) -> Matrix:
    """Return rows as an array after checking that the estimator is fitted for them."""
    check_is_fitted(estimator)
    return np.asarray(validate_data(estimator, X, reset=False, dtype=_FLOATS))


def _embeddings(X: Matrix, detector: Detector) -> Matrix:
    """Return the rows, with the constant feature if the detector has a weight for it."""
    if detector.n_features == X.shape[1]:
        return X
    return np.hstack([X, np.ones((len(X), 1), dtype=X.dtype)])


def _head_weight(model: Any, n_classes: int) -> Matrix:
    """Return the weight (C, M) of a linear classifier, or (C, M + 1) with the intercepts as last column."""
    name = type(model).__name__
    if not is_classifier(model) or not hasattr(model, "coef_"):
        raise ValueError(
            f"estimator is a {name}: expected a linear classifier with coef_ after fitting, such as "
            "LogisticRegression. Put PNMLClassifier into pipelines and searches, not the reverse"
        )
    weight = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    if getattr(model, "fit_intercept", hasattr(model, "intercept_")):
        weight = np.hstack([weight, np.reshape(model.intercept_, (-1, 1))])
    if n_classes == 2 and len(weight) == 1:
        weight = np.vstack([np.zeros_like(weight), weight])
    if len(weight) != n_classes:
        raise ValueError(f"coef_ of {name} has {len(weight)} rows: expected one per class, {n_classes} in total")
    return weight


def _check_linear(model: Any, classes: Matrix, X: Matrix, scores: Matrix) -> None:
    """Raise a ``ValueError`` if predictions are not the largest linear score, as for a one-vs-one ``SVC``."""
    predicted = np.searchsorted(classes, model.predict(X))
    gap = scores.max(axis=1) - scores[np.arange(len(scores)), predicted]
    if (gap > 1e-5 * np.abs(scores).max()).any():
        raise ValueError(
            f"predictions of {type(model).__name__} are not the classes of largest X @ coef_.T + intercept_: expected "
            "a model with one row of coef_ per class"
        )
