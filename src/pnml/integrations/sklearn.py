"""The scikit-learn face: a linear classifier that knows its regret, and an outlier detector built on it.

The features are the embeddings here, as they are (``embedding_scale="natural"``), and the wrapped model's coefficients
are the last layer. An intercept is the weight of a feature that is always 1, so that feature is appended to every row
before the leverage is taken, which therefore depends neither on the origin of the features nor on their units.
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


class PNMLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn carries no types
    """A linear classifier with pNML probabilities and a regret for every prediction.

    A clone of ``estimator`` is fitted; its predictions stay what they are. The model's probabilities p are the softmax
    of its linear scores, for two classes of the pair (0, score). That is the ``predict_proba`` of
    ``LogisticRegression`` and ``LinearDiscriminantAnalysis``. One-vs-rest and margin models (``SGDClassifier``,
    ``RidgeClassifier``, ``LinearSVC``) normalise differently or have no probabilities: their scores are taken as
    logits.

    Args:
        estimator: a classifier that has ``coef_`` and ``intercept_`` once fitted, with one row per class (one row in
            all for two classes); ``LogisticRegression()`` when left out. Write it out to tune it in a grid search, as
            ``estimator__C``.

    Attributes:
        classes_: the labels, sorted, shape (C,).
        estimator_: the fitted clone.
        detector_: the :class:`~pnml.Detector` on the features, with the constant 1 as last feature if the model has an
            intercept.
        n_features_in_: the number of features.
        feature_names_in_: their names, where the training set had any.

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
        """Fit the classifier, then the geometry of its training rows: X of shape (N, M), y of shape (N,)."""
        X, y = validate_data(self, X, y, dtype=_FLOATS)
        check_classification_targets(y)
        self.estimator_ = (LogisticRegression() if self.estimator is None else clone(self.estimator)).fit(X, y)
        self.classes_ = np.unique(y)
        self.detector_ = Detector(_last_layer(self.estimator_, len(self.classes_)), embedding_scale="natural")
        rows = _rows(X, self.detector_)
        _check_linear(self.estimator_, self.classes_, X, rows @ self.detector_.weight.T)
        self.detector_.fit(rows)
        return self

    def predict(self, X: Any) -> Matrix:
        """Give the wrapped model's label of every row (n, M), which is also the most probable one under q."""
        X = _seen(self, X)
        return np.asarray(self.estimator_.predict(X))

    def predict_proba(self, X: Any) -> Matrix:
        """Give the pNML probabilities q of rows (n, M), shape (n, C), columns as in ``classes_``."""
        X = _seen(self, X)
        return np.asarray(self.detector_.predict_proba(_rows(X, self.detector_)))

    def regret(self, X: Any) -> Matrix:
        """Give the regret in nats of rows (n, M), shape (n,): larger = less trustworthy, at most log C."""
        X = _seen(self, X)
        return np.asarray(self.detector_.score(_rows(X, self.detector_)))


class PNMLOutlierDetector(OutlierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn carries no types
    """The regret as an outlier score, with scikit-learn's signs: larger = more normal, outliers are −1.

    With labels, the regret is that of a :class:`PNMLClassifier` fitted on them: a row is an outlier when a classifier
    trained on such data could be talked into different answers about it. Without labels nothing favours any answer, so
    p is uniform over two classes and the regret is ``log(2 / (1 + 2^(−xᵀg)))``, which rises with the leverage alone:
    rows are sorted by their Mahalanobis distance from the training mean.

    Args:
        estimator: the linear classifier used when there are labels, as in :class:`PNMLClassifier`.
        contamination: the share of the *training* rows to be called outliers, in (0, 0.5]; it sets ``offset_``. For a
            threshold that holds on fresh data, hand held-out regrets to :func:`pnml.core.calibration.calibrate`.

    Attributes:
        offset_: what ``decision_function`` subtracts from ``score_samples``.
        detector_: the :class:`~pnml.Detector` on the features, as in :class:`PNMLClassifier`.
        n_features_in_: the number of features.
        feature_names_in_: their names, where the training set had any.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> PNMLOutlierDetector(contamination=0.05).fit(X).predict([[0.0, 0.0], [9.0, -9.0]])
    array([ 1, -1])
    """

    def __init__(self, estimator: Any = None, *, contamination: float = 0.1) -> None:
        self.estimator = estimator
        self.contamination = contamination

    def fit(self, X: Any, y: Any = None) -> PNMLOutlierDetector:
        """Fit on rows X of shape (N, M) and, where there are any, their class labels y of shape (N,)."""
        if not 0 < self.contamination <= 0.5:
            raise ValueError(
                f"contamination must be the share of outliers in the training rows, in (0, 0.5]; got "
                f"{self.contamination}"
            )
        if y is None:
            X = validate_data(self, X, dtype=_FLOATS, ensure_min_samples=2)
            self.detector_ = Detector(np.zeros((2, X.shape[1] + 1)), embedding_scale="natural")
            self.detector_.fit(_rows(X, self.detector_))
        else:
            X, y = validate_data(self, X, y, dtype=_FLOATS)
            self.detector_ = PNMLClassifier(self.estimator).fit(X, y).detector_
        self.offset_ = float(np.quantile(self._normality(X), self.contamination))
        return self

    def fit_predict(self, X: Any, y: Any = None) -> Matrix:
        """Fit, and give 1 for inliers and −1 for outliers among the training rows, shape (N,)."""
        return self.fit(X, y).predict(X)

    def score_samples(self, X: Any) -> Matrix:
        """Give the negative regret in nats of rows (n, M), shape (n,): larger = more normal."""
        return self._normality(_seen(self, X))

    def decision_function(self, X: Any) -> Matrix:
        """Give ``score_samples(X) − offset_``, shape (n,): negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> Matrix:
        """Give 1 for inliers and −1 for outliers, shape (n,)."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _normality(self, X: Matrix) -> Matrix:
        return -np.asarray(self.detector_.score(_rows(X, self.detector_)), dtype=np.float64)


def _seen(estimator: Any, X: Any) -> Matrix:
    """Check rows against what the estimator was fitted on."""
    check_is_fitted(estimator)
    return np.asarray(validate_data(estimator, X, reset=False, dtype=_FLOATS))


def _rows(X: Matrix, detector: Detector) -> Matrix:
    """Append the constant feature where the detector has a weight for it."""
    if detector.n_features == X.shape[1]:
        return X
    return np.hstack([X, np.ones((len(X), 1), dtype=X.dtype)])


def _last_layer(model: Any, n_classes: int) -> Matrix:
    """Give the weight (C, M), or (C, M + 1) with the intercepts as last column, of a fitted linear classifier."""
    name = type(model).__name__
    if not is_classifier(model) or not hasattr(model, "coef_"):
        raise ValueError(
            f"estimator must be a linear classifier, with coef_ once fitted, such as LogisticRegression; got {name}. "
            "Pipelines and searches go around PNMLClassifier, not into it"
        )
    weight = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    if getattr(model, "fit_intercept", hasattr(model, "intercept_")):
        weight = np.hstack([weight, np.reshape(model.intercept_, (-1, 1))])
    if n_classes == 2 and len(weight) == 1:
        weight = np.vstack([np.zeros_like(weight), weight])
    if len(weight) != n_classes:
        raise ValueError(f"estimator must have one row of coef_ per class: {name} has {len(weight)} for {n_classes}")
    return weight


def _check_linear(model: Any, classes: Matrix, X: Matrix, scores: Matrix) -> None:
    """Refuse a model whose predictions are not the largest of its linear scores (one-vs-one ``SVC``, for one)."""
    predicted = np.searchsorted(classes, model.predict(X))
    behind = scores.max(axis=1) - scores[np.arange(len(scores)), predicted]
    if (behind > 1e-5 * np.abs(scores).max()).any():
        raise ValueError(
            f"the class {type(model).__name__} predicts is not the one with the largest of X @ coef_.T + intercept_: "
            "its rows of coef_ do not stand for classes"
        )
