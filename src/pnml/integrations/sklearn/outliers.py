"""The regret as an outlier score with the interface of scikit-learn's outlier detectors."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import OutlierMixin
from sklearn.utils.validation import validate_data

from pnml.integrations.sklearn.base import RegretEstimator
from pnml.integrations.sklearn.inputs import checked_rows
from pnml.integrations.sklearn.parts import FLOATS, Matrix, ModelParts
from pnml.integrations.sklearn.weights import checked_weights, counts_of

if TYPE_CHECKING:
    from pnml.core.calibration import Threshold

AUTO_SHARE = 0.05
"""The share of training rows, each left out of the leverage, that ``contamination="auto"`` leaves outside."""


class PNMLOutlierDetector(OutlierMixin, RegretEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The regret as an outlier score, with scikit-learn's signs: larger = more normal, outliers are −1.

    With an estimator, the regret is that of :class:`PNMLClassifier`: ``fit(X, y)`` fits a clone of the estimator on
    class labels, ``fit(X)`` takes one that is fitted already. Without estimator and labels, p is uniform over two
    classes and the regret is ``log(2 / (1 + 2^(−xᵀg)))``, which increases with the leverage alone: rows are ranked by
    their Mahalanobis distance from the training mean.

    Args:
        estimator: the classifier, as in :class:`PNMLClassifier`.
        contamination: the share of *training* rows to label as outliers, in (0, 0.5]; it sets ``offset_``. With "auto"
            no training row is taken for an outlier: the threshold is the regret that 5 % of them exceed, each left out
            of the leverage, as new rows are. Copies of a row stay when it is left out, so fit each row once. For a rate
            of false alarms with a guarantee, call :meth:`calibrate`.

    Attributes:
        offset_: the value that ``decision_function`` subtracts from ``score_samples``.
        estimator_: the fitted classifier, if there is one.
        detector_: the :class:`~pnml.Detector` on the features, as in :class:`PNMLClassifier`.
        n_features_in_: the number of features.
        feature_names_in_: the names of the features, if the training set had any.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> PNMLOutlierDetector(contamination=0.05).fit(X).predict([[0.0, 0.0], [9.0, -9.0]])
    array([ 1, -1])
    """

    def __init__(self, estimator: Any = None, *, contamination: float | Literal["auto"] = 0.1) -> None:
        super().__init__(estimator)
        self.contamination = contamination

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> PNMLOutlierDetector:
        """Fit on training rows.

        Args:
            X: rows, shape (N, M), dense or sparse; whatever the estimator takes if it is a pipeline.
            y: class labels, shape (N,). Leave them out if there are none, or if the estimator is fitted already.
            sample_weight: shape (N,), as in :class:`PNMLClassifier`; the share of outliers is one of the weights, too.
        """
        share = self._checked_contamination()
        if self.estimator is None and y is None:
            rows = validate_data(self, checked_rows(X), accept_sparse="csr", dtype=FLOATS, ensure_min_samples=2)
            parts = ModelParts(np.zeros((2, rows.shape[1])), np.zeros(2), has_model=False)
            weights = checked_weights(sample_weight, rows)
        else:
            parts, rows, weights = self._fit_estimator(X, y, sample_weight)
        self._fit_detector(parts, rows, weights)
        regrets = self._calibration_scores(X, leave_one_out=self.contamination == "auto").scores
        counts = counts_of(weights)
        counted = regrets if counts is None else np.repeat(regrets, counts)
        self.offset_ = float(np.quantile(-counted.astype(np.float64), share))
        return self

    def _checked_contamination(self) -> float:
        if isinstance(self.contamination, str) and self.contamination == "auto":
            return AUTO_SHARE
        if not (isinstance(self.contamination, Real) and 0 < self.contamination <= 0.5):
            raise ValueError(
                f"contamination is {self.contamination!r}: expected the share of training outliers, in (0, 0.5], or "
                '"auto"'
            )
        return float(self.contamination)

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> Matrix:
        """Fit and return 1 for inliers and −1 for outliers among the training rows, shape (N,)."""
        return self.fit(X, y, sample_weight).predict(X)

    def calibrate(self, X: Any, *, false_alarm_rate: float = 0.05, leave_one_out: bool = False) -> Threshold:
        """Set ``offset_`` so that at most ``false_alarm_rate`` of in-distribution rows are outliers.

        Args:
            X: in-distribution rows that were *not* fitted on, as ``fit`` takes them.
            false_alarm_rate: the share of fresh in-distribution rows that may be called outliers.
            leave_one_out: X *are* the training rows, as in :meth:`PNMLClassifier.calibrate`.

        Returns:
            The threshold on the regret; ``offset_`` is its negative value.
        """
        found = self._calibration_scores(X, leave_one_out=leave_one_out)
        threshold = found.threshold(false_alarm_rate=false_alarm_rate, by=None)
        self.detector_.threshold, self.offset_ = threshold, -threshold.value
        return threshold

    def score_samples(self, X: Any) -> Matrix:
        """Return the negative regret in nats of rows, shape (n,): larger = more normal."""
        return -self._regret(X).astype(np.float64)

    def decision_function(self, X: Any) -> Matrix:
        """Return ``score_samples(X) − offset_``, shape (n,): negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> Matrix:
        """Return 1 for inliers and −1 for outliers, shape (n,)."""
        return np.where(self.decision_function(X) >= 0, 1, -1)  # a score that is no number is that of an outlier
