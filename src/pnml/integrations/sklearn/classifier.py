"""A classifier of scikit-learn with pNML probabilities and a regret for every prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import ClassifierMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from pnml.core import theorem
from pnml.integrations.sklearn.base import RegretEstimator
from pnml.integrations.sklearn.inputs import checked_rows

if TYPE_CHECKING:
    from pnml.core.calibration import By, Threshold
    from pnml.integrations.sklearn.parts import Matrix


class PNMLClassifier(ClassifierMixin, TransformerMixin, RegretEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier that ends in a linear layer, with pNML probabilities and a regret for every prediction.

    ``fit(X, y)`` fits a clone of ``estimator``, which makes the predictions. ``fit(X)`` takes an estimator that is
    fitted already, as it is. Rows may be sparse, or whatever a pipeline takes.

    Args:
        estimator: a classifier with probabilities that ends in a linear layer: ``LogisticRegression`` (the default),
            ``LogisticRegressionCV``, ``LinearDiscriminantAnalysis``, ``SGDClassifier(loss="log_loss")``,
            ``MLPClassifier``, or a pipeline or search that ends in one of these. Pass it explicitly to tune it in a
            search, for example ``estimator__C``.

    Attributes:
        classes_: the sorted labels, shape (C,).
        estimator_: the fitted clone, or a copy of the estimator that was fitted already.
        detector_: the :class:`~pnml.Detector`. Its embeddings are what enters the last layer: the last hidden one of an
            ``MLPClassifier``; for a linear model the features about their mean, in one unit, and the constant 1. Its
            ``features`` are earlier hidden layers and the input, each column in standard deviations.
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

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> PNMLClassifier:
        """Fit the classifier and the detector.

        Args:
            X: rows, shape (N, M), dense or sparse; whatever the estimator takes if it is a pipeline.
            y: labels, shape (N,). Leave them out to take an estimator that is fitted already.
            sample_weight: shape (N,). The estimator gets them, if it is fitted here, and a row of weight w counts as w
                rows in the leverage.
        """
        self._fit_detector(*self._fit_estimator(X, y, sample_weight))
        self.classes_ = np.asarray(self.estimator_.classes_)
        return self

    def calibrate(
        self, X: Any, *, false_alarm_rate: float = 0.05, by: By | None = None, leave_one_out: bool = False
    ) -> Threshold:
        """Set the threshold so that at most ``false_alarm_rate`` of in-distribution rows are flagged; return it.

        Args:
            X: in-distribution rows that were *not* fitted on, as ``fit`` takes them.
            false_alarm_rate: the share of fresh in-distribution rows that may be flagged.
            by: "prediction" keeps the rate for every predicted class; see :meth:`pnml.Detector.calibrate`.
            leave_one_out: X *are* the training rows; each is scored as if the leverage did not know it. The classifier
                does, so the realised rate is higher than asked for.
        """
        found = self._calibration_scores(X, leave_one_out=leave_one_out)
        self.detector_.threshold = found.threshold(false_alarm_rate=false_alarm_rate, by=by)
        return self.detector_.threshold

    def predict(self, X: Any) -> Matrix:
        """Return the labels that the wrapped model predicts, shape (n,); they are also the most probable under q."""
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict(checked_rows(X)))

    def predict_proba(self, X: Any) -> Matrix:
        """Return the pNML probabilities q of rows, shape (n, C), columns as in ``classes_``.

        They are those of the wrapped model, made more careful where the training set says little.
        """
        q = [theorem.predictive(theorem.log_softmax(found.logits), found.xtg, log=True) for found in self._results(X)]
        return np.concatenate(q)

    def predict_log_proba(self, X: Any) -> Matrix:
        """Return log q of rows, shape (n, C); that of a probability that vanishes is finite, about −708."""
        q = self.predict_proba(X)
        return np.asarray(np.log(np.maximum(q, np.finfo(q.dtype).tiny)))

    def decision_function(self, X: Any) -> Matrix:
        """Return log q of rows, shape (n, C); for two classes log q₁ − log q₀, shape (n,)."""
        log_q = self.predict_log_proba(X)
        return np.asarray(log_q[:, 1] - log_q[:, 0] if len(self.classes_) == 2 else log_q)

    def regret(self, X: Any) -> Matrix:
        """Return the regret in nats of rows, shape (n,): larger = less trustworthy, at most log C."""
        return self._regret(X)

    def transform(self, X: Any) -> Matrix:
        """Return the regret as a column, shape (n, 1), which pipelines and searches pass through."""
        return self._regret(X)[:, None]

    def get_feature_names_out(self, input_features: Any = None) -> Matrix:  # noqa: ARG002 - scikit-learn passes it
        """Return the name of the column of :meth:`transform`."""
        return np.array(["regret"], dtype=object)
