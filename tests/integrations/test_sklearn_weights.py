"""A row of weight w counts as w rows: for the estimator, for the leverage and for the share of outliers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from pnml import PNMLClassifier, PNMLOutlierDetector
from pnml.integrations.sklearn.weights import counts_of

from .rows import anew, iris

EXACT = LogisticRegression(solver="newton-cholesky", tol=1e-9)
PERCEPTRON = FrozenEstimator(MLPClassifier((3,), "tanh", solver="lbfgs", tol=0.1, random_state=0).fit(*iris()))
WEIGHTS = np.random.default_rng(0).integers(0, 4, size=150)
FRESH = np.random.default_rng(1).normal(scale=2, size=(30, 4))


@pytest.mark.parametrize(
    "model", [EXACT, make_pipeline(MinMaxScaler(), EXACT), PERCEPTRON], ids=["model", "pipeline", "perceptron"]
)
def test_weights_are_repetitions(model: Any) -> None:
    X, y = iris()
    X[WEIGHTS == 0] *= 0.5  # so that the scale of the pipeline does not depend on them
    weighted = PNMLClassifier(model).fit(X, y, sample_weight=WEIGHTS)
    repeated = PNMLClassifier(model).fit(np.repeat(X, WEIGHTS, axis=0), np.repeat(y, WEIGHTS))
    np.testing.assert_allclose(weighted.regret(FRESH), repeated.regret(FRESH), rtol=1e-5)
    np.testing.assert_allclose(weighted.predict_proba(FRESH), repeated.predict_proba(FRESH), rtol=1e-5, atol=1e-9)
    assert (weighted.regret(FRESH) != PNMLClassifier(model).fit(X, y).regret(FRESH)).all()


def test_weights_of_a_fitted_model_enter_the_leverage_alone() -> None:
    X, y = iris()
    model = LogisticRegression().fit(X, y)
    expected = anew(model, np.repeat(X, WEIGHTS, axis=0), FRESH).regret
    taken = PNMLClassifier(model).fit(X, sample_weight=WEIGHTS)
    frozen = PNMLClassifier(FrozenEstimator(model)).fit(X, y, sample_weight=WEIGHTS)
    for classifier in (taken, frozen):
        np.testing.assert_allclose(classifier.regret(FRESH), expected, rtol=1e-6)


@pytest.mark.parametrize("contamination", [0.1, 0.37, "auto"])
@pytest.mark.parametrize("labelled", [False, True])
def test_the_share_of_outliers_is_one_of_weights(contamination: Any, labelled: bool) -> None:  # noqa: FBT001
    X, y = iris()
    labels = y if labelled else None
    detector = PNMLOutlierDetector(EXACT if labelled else None, contamination=contamination)
    weighted = detector.fit(X, labels, sample_weight=WEIGHTS).offset_
    again = None if labels is None else np.repeat(labels, WEIGHTS)
    assert weighted == pytest.approx(detector.fit(np.repeat(X, WEIGHTS, axis=0), again).offset_, rel=1e-5)


@pytest.mark.parametrize("factor", [1e-6, 0.3, 1e6])
def test_weights_that_are_no_counts_are_shares_of_the_rows(factor: float) -> None:
    weights = np.arange(100.0)
    counts = counts_of(factor * weights)
    assert counts is not None
    assert counts.sum() == 100
    assert (np.abs(counts - weights * 100 / weights.sum()) <= 1).all()


def test_weights_reach_a_pipeline_with_metadata_routing() -> None:
    X, y = iris()
    model = LogisticRegression(solver="newton-cholesky", tol=1e-9)
    expected = PNMLClassifier(make_pipeline(StandardScaler(), model)).fit(X, y, sample_weight=WEIGHTS).regret(FRESH)
    with sklearn.config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        routed = make_pipeline(scaler, model.set_fit_request(sample_weight=True))
        found = PNMLClassifier(routed).fit(X, y, sample_weight=WEIGHTS).regret(FRESH)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("routed", [False, True])
def test_weights_reach_the_estimator_through_a_search(routed: bool) -> None:  # noqa: FBT001
    X, y = iris()
    with sklearn.config_context(enable_metadata_routing=routed):
        classifier = PNMLClassifier(EXACT)
        if routed:
            classifier.set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        search = GridSearchCV(classifier, {"estimator__C": [1.0]}, cv=3).fit(X, y, sample_weight=WEIGHTS)
        expected = PNMLClassifier(EXACT).fit(X, y, sample_weight=WEIGHTS).regret(FRESH)
    np.testing.assert_allclose(search.best_estimator_.regret(FRESH), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("estimator", "weights", "message"),
    [
        (LogisticRegression(), -np.ones(150), "Negative values in data passed to `sample_weight`"),
        (LogisticRegression(), np.zeros(150), "at least one"),
        (LogisticRegression(), np.ones(149), "sample_weight"),
        (LinearDiscriminantAnalysis(), np.ones(150), "fit of LinearDiscriminantAnalysis takes no sample_weight"),
        (make_pipeline(LinearDiscriminantAnalysis()), np.ones(150), "fit of LinearDiscriminantAnalysis takes no"),
    ],
)
def test_weights_that_cannot_be_used_raise(estimator: Any, weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PNMLClassifier(estimator).fit(*iris(), sample_weight=weights)
