"""A row of weight w counts as w rows: for the estimator, for the leverage and for the share of outliers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from pnml import PNMLClassifier, PNMLOutlierDetector
from pnml.core.detector import FewRowsWarning
from pnml.integrations.sklearn.weights import weighted_quantile

from .rows import iris, regret_anew

EXACT = LogisticRegression(solver="newton-cholesky", tol=1e-9)
PERCEPTRON = MLPClassifier((3,), solver="lbfgs", tol=0.1, random_state=0).fit(*iris())
WEIGHTS = np.random.default_rng(0).integers(0, 4, size=150)
FRESH = np.random.default_rng(1).normal(scale=2, size=(30, 4))


@pytest.mark.parametrize("model", [EXACT, make_pipeline(MinMaxScaler(), EXACT)], ids=["model", "pipeline"])
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
    expected = regret_anew(np.repeat(X, WEIGHTS, axis=0), FRESH, model.decision_function(FRESH))
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


def test_weighted_quantiles_equal_those_of_repeated_values() -> None:
    rng = np.random.default_rng(0)
    for share in (0.0, 0.013, 0.5, 0.77, 1.0):
        values, weights = rng.normal(size=40), rng.integers(0, 5, size=40)
        assert weighted_quantile(values, share, weights) == pytest.approx(np.quantile(values.repeat(weights), share))
    assert weighted_quantile(values, 0.5, np.full(40, 1e-3)) == values.min()  # less than one row in all


@given(
    st.lists(st.floats(0, 3), min_size=1, max_size=20).filter(any),
    st.floats(0, 1),
)
def test_weighted_quantiles_lie_among_the_values_whatever_the_weights(weights: list[float], share: float) -> None:
    values = np.arange(len(weights), dtype=np.float64)
    found = weighted_quantile(values, share, np.array(weights))
    counted = values[np.array(weights) > 0]
    assert counted.min() <= found <= counted.max()


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
        (FrozenEstimator(PERCEPTRON), np.ones(150), r"repeat rows.*np\.repeat"),
    ],
)
def test_weights_that_cannot_be_used_raise(estimator: Any, weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PNMLClassifier(estimator).fit(*iris(), sample_weight=weights)


@pytest.mark.filterwarnings("always::pnml.core.detector.FewRowsWarning")
def test_weights_that_sum_to_one_row_are_few_rows() -> None:
    X, y = iris()
    with pytest.warns(FewRowsWarning, match=r"1 training rows \(the sum of sample_weight.*for 5 features"):
        PNMLClassifier().fit(X, y, sample_weight=np.full(150, 1 / 150))
    with pytest.warns(FewRowsWarning, match="4 training rows.*for 5 features.*reduce the features") as found:
        PNMLClassifier().fit(X[::40], y[::40]).regret(X)
    assert len(found) == 1
    assert found[0].filename == __file__
