"""The outlier detector: its scores, its signs, and what contamination means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.covariance import EmpiricalCovariance
from sklearn.datasets import load_digits
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pnml import PNMLClassifier, PNMLOutlierDetector

from .rows import Matrix, anew, iris, with_constant

FRESH = np.random.default_rng(0).normal(scale=2, size=(30, 4))


def auroc(detector: Any, normal: Matrix, outliers: Matrix) -> float:
    truth = np.repeat([1, 0], [len(normal), len(outliers)])
    return float(roc_auc_score(truth, detector.score_samples(np.concatenate([normal, outliers]))))


def test_interface_is_that_of_isolation_forest_and_auroc_is_higher() -> None:
    X, y = load_digits(return_X_y=True)
    X, known = X / 16, y < 8
    train, test, labels, _ = train_test_split(X[known], y[known], random_state=0, stratify=y[known])
    noise = np.random.default_rng(0).uniform(size=(300, 64))
    detector = PNMLOutlierDetector(LogisticRegression(max_iter=1000)).fit(train, labels)
    forest = IsolationForest(random_state=0, contamination=0.1).fit(train)
    for each in (detector, forest):
        assert set(each.predict(train)) == {-1, 1}
        assert np.mean(each.predict(train) == -1) == pytest.approx(0.1, abs=0.01)
        assert auroc(each, test, noise) > 0.99
        for rows in (test, X[~known]):
            decision = each.decision_function(rows)
            np.testing.assert_allclose(decision, each.score_samples(rows) - each.offset_)
            assert ((decision < 0) == (each.predict(rows) == -1)).all()
    assert auroc(detector, test, X[~known]) > auroc(forest, test, X[~known]) + 0.2


def test_scores_with_labels_are_negative_regrets() -> None:
    X, y = iris()
    detector = PNMLOutlierDetector(contamination=0.2).fit(X, y)
    assert (detector.score_samples(X) == -PNMLClassifier().fit(X, y).regret(X)).all()
    assert (detector.predict(X) == -1).sum() == 30
    assert (PNMLOutlierDetector(contamination=0.2).fit_predict(X, y) == detector.predict(X)).all()
    assert (PNMLOutlierDetector(contamination=0.2).fit_predict(X) != detector.predict(X)).any()


def test_scores_without_labels_rank_by_mahalanobis_distance() -> None:
    X, _ = iris()
    detector = PNMLOutlierDetector().fit(X)
    distance = EmpiricalCovariance().fit(X).mahalanobis(FRESH)
    assert (np.argsort(-detector.score_samples(FRESH)) == np.argsort(distance)).all()
    h = leverage(X, FRESH)
    np.testing.assert_allclose(detector.score_samples(FRESH), -np.log(2 / (1 + 2 ** (-h / (1 + h)))))
    assert (detector.predict(np.full((1, 4), 9.0)) == -1).all()


def leverage(X: Matrix, x: Matrix) -> Matrix:
    return np.asarray(((with_constant(x) @ np.linalg.pinv(with_constant(X))) ** 2).sum(axis=1))


def test_a_fitted_estimator_is_used_without_labels() -> None:
    X, y = iris()
    model = LogisticRegression(C=0.1).fit(X, y)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=0.1)).fit(5 * X + 1, y)
    expected = -anew(model, X, FRESH).regret
    np.testing.assert_allclose(PNMLOutlierDetector(model).fit(X).score_samples(FRESH), expected, rtol=1e-6)
    detector = PNMLOutlierDetector(pipeline).fit(5 * X + 1)
    np.testing.assert_allclose(detector.score_samples(5 * FRESH + 1), expected, rtol=1e-3)
    assert (np.abs(expected - PNMLOutlierDetector().fit(X).score_samples(FRESH)) > 1e-3).any()


def test_auto_flags_what_exceeds_the_regret_of_left_out_training_rows() -> None:
    X, _ = iris()
    h = np.array([leverage(np.delete(X, i, axis=0), X[i : i + 1])[0] for i in range(len(X))])
    expected = -np.log(2 / (1 + 2 ** (-h / (1 + h))))
    assert PNMLOutlierDetector(contamination="auto").fit(X).offset_ == pytest.approx(np.quantile(expected, 0.05))


def test_auto_flags_about_one_in_twenty_fresh_rows() -> None:
    rng = np.random.default_rng(0)
    detector = PNMLOutlierDetector(contamination="auto").fit(rng.normal(size=(400, 30)))
    assert np.mean(detector.predict(rng.normal(size=(4000, 30))) == -1) == pytest.approx(0.05, abs=0.03)


@pytest.mark.parametrize("contamination", [0, 0.6, -1, "automatic", None])
def test_contamination_out_of_range_raises(contamination: Any) -> None:
    with pytest.raises(ValueError, match=rf'contamination is {contamination!r}: .*in \(0, 0\.5\], or "auto"'):
        PNMLOutlierDetector(contamination=contamination).fit(*iris())


@pytest.mark.parametrize("labelled", [False, True])
def test_rows_too_large_to_score_are_outliers(labelled: bool) -> None:  # noqa: FBT001
    X, y = iris()
    detector = PNMLOutlierDetector().fit(X, y if labelled else None)
    rows = np.vstack([X[:1], np.full((1, 4), 1.7e308), [[1.7e308, -1.7e308, 1.7e308, -1.7e308]]])
    assert detector.predict(rows)[1:].tolist() == [-1, -1]
    detector.calibrate(X, leave_one_out=True)
    assert detector.predict(rows)[1:].tolist() == [-1, -1]
    assert detector.is_ood(rows)[1:].all()
