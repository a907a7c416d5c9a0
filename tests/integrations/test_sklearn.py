"""The classifier as any other of scikit-learn, and what its regret finds."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from joblib import Parallel, delayed, parallel_config
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from pnml import PNMLClassifier, PNMLOutlierDetector

from .rows import anew, iris

NAMES = np.array(["setosa", "versicolor", "virginica"])


def scaled(model: Any) -> Any:
    return make_pipeline(StandardScaler(), model)


def test_neither_origin_nor_unit_matter() -> None:
    X, y = iris()
    other = 1e6 * X + [1.0, -100.0, 0.0, 1e7]
    regret = PNMLClassifier(LinearDiscriminantAnalysis()).fit(X, y).regret(X)
    again = PNMLClassifier(LinearDiscriminantAnalysis()).fit(other, y).regret(other)
    np.testing.assert_allclose(again, regret, rtol=1e-5)


def test_float32_features_return_float32_regret() -> None:
    X, y = iris()
    narrow = PNMLClassifier().fit(X.astype(np.float32), y)
    assert narrow.regret(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(narrow.regret(X.astype(np.float32)), PNMLClassifier().fit(X, y).regret(X), rtol=1e-2)


def test_fit_does_not_change_the_estimator_passed_in() -> None:
    model = LogisticRegression()
    PNMLClassifier(model).fit(*iris())
    PNMLOutlierDetector(model).fit(*iris())
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize("kind", [PNMLClassifier, PNMLOutlierDetector])
@pytest.mark.parametrize("method", ["predict", "decision_function", "calibrate", "is_ood", "p_value"])
def test_methods_before_fit_raise(kind: Any, method: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(kind(), method)(np.ones((1, 2)))


@pytest.mark.parametrize(("label", "shown"), [(3, "3"), ("cat", "'cat'")])
def test_labels_of_one_class_are_refused_by_its_name(label: Any, shown: str) -> None:
    with pytest.raises(ValueError, match=f"at least two classes in y, got one class: {shown}$"):
        PNMLClassifier().fit(np.eye(4), [label] * 4)


def test_regret_is_larger_for_unseen_digits_rotations_and_noise() -> None:
    X, y = load_digits(return_X_y=True)
    X, known = X / 16, y < 8
    train, test, labels, _ = train_test_split(X[known], y[known], random_state=0, stratify=y[known])
    classifier = PNMLClassifier(LogisticRegression(max_iter=1000)).fit(train, labels)
    rotated = np.rot90(test.reshape(-1, 8, 8), axes=(1, 2)).reshape(-1, 64)
    noise = np.random.default_rng(0).uniform(size=(300, 64))
    for strange, least in ((X[~known], 0.9), (rotated, 0.99), (noise, 0.99)):
        truth = np.repeat([0, 1], [len(test), len(strange)])
        assert roc_auc_score(truth, classifier.regret(np.vstack([test, strange]))) > least


def test_around_a_pipeline_and_inside_of_one_regrets_are_the_same() -> None:
    X, y = load_iris(return_X_y=True)
    around = PNMLClassifier(scaled(LogisticRegression())).fit(X, y)
    inside = scaled(PNMLClassifier(LogisticRegression())).fit(X, y)
    Z = StandardScaler().fit_transform(X)
    expected = anew(LogisticRegression().fit(Z, y), Z, Z).regret
    np.testing.assert_allclose(around.regret(X), expected, rtol=1e-6)
    np.testing.assert_allclose(inside.transform(X)[:, 0], expected, rtol=1e-6)
    assert (inside[-1].regret(inside[:-1].transform(X)) == inside.transform(X)[:, 0]).all()
    assert around.n_features_in_ == 4


def test_a_fitted_pipeline_is_taken_as_it_is() -> None:
    X, y = load_iris(return_X_y=True)
    pipeline = scaled(make_pipeline(FunctionTransformer(), LogisticRegression())).fit(X, y)  # one inside another
    classifier = PNMLClassifier(pipeline).fit(X)
    Z = pipeline[0].transform(X)
    np.testing.assert_allclose(classifier.regret(X), anew(pipeline[-1][-1], Z, Z).regret, rtol=1e-6)
    assert (classifier.predict(X) == pipeline.predict(X)).all()


def mean_regret(estimator: Any, X: Any, y: Any) -> float:
    return -float(estimator.regret(X).mean())


@pytest.mark.parametrize("scoring", ["neg_log_loss", "roc_auc_ovr", mean_regret])
def test_searches_judge_the_estimator_and_pass_the_regret_on(scoring: Any) -> None:
    X, y = load_iris(return_X_y=True)
    classifier = PNMLClassifier(scaled(LogisticRegression()))
    grid = {"estimator__logisticregression__C": [1e-4, 1.0]}
    search = GridSearchCV(classifier, grid, scoring=scoring, cv=3, error_score="raise").fit(X, y)
    best = search.best_estimator_
    assert search.best_params_ == {"estimator__logisticregression__C": best.estimator_[-1].C}
    assert (search.transform(X)[:, 0] == best.regret(X)).all()
    assert (search.decision_function(X) == best.decision_function(X)).all()
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_searches_of_outlier_detectors_pass_their_scores_on() -> None:
    X, y = load_iris(return_X_y=True)
    detector = PNMLOutlierDetector(scaled(LogisticRegression()))

    def auroc(estimator: Any, rows: Any, labels: Any) -> float:
        known, strange = estimator.score_samples(rows), estimator.score_samples(rows[:, ::-1])
        return float((known[:, None] > strange).mean())

    search = GridSearchCV(detector, {"estimator__logisticregression__C": [0.1, 10.0]}, scoring=auroc, cv=3).fit(X, y)
    assert search.best_score_ > 0.9
    assert (search.score_samples(X) == search.best_estimator_.score_samples(X)).all()


def test_clones_parameters_and_pickles() -> None:
    X, y = load_iris(return_X_y=True)
    classifier = PNMLClassifier(scaled(LogisticRegression(C=0.5))).fit(X, y)
    classifier.calibrate(X, leave_one_out=True)
    again = clone(classifier)
    assert not hasattr(again, "detector_")
    assert again.get_params()["estimator__logisticregression__C"] == 0.5
    changed = again.set_params(estimator__logisticregression__C=5.0).fit(X, y)
    assert (changed.regret(X) != classifier.regret(X)).any()
    assert "PNMLClassifier" in changed._repr_html_()  # what a notebook shows
    restored = pickle.loads(pickle.dumps(classifier))  # noqa: S301 - own bytes
    assert (restored.regret(X) == classifier.regret(X)).all()
    assert (restored.is_ood(X) == classifier.is_ood(X)).all()


def test_the_regret_may_be_a_feature_of_another_model() -> None:
    X, y = iris()
    union = make_union(FunctionTransformer(), PNMLClassifier()).fit(X, y)
    assert (union.transform(X)[:, 4] == PNMLClassifier().fit(X, y).regret(X)).all()
    assert list(PNMLClassifier().get_feature_names_out()) == ["regret"]


@pytest.mark.parametrize("classes", [2, 3])
def test_log_probabilities_and_decisions_follow_from_probabilities(classes: int) -> None:
    X, y = iris(classes)
    classifier = PNMLClassifier().fit(X, NAMES[y])
    assert (classifier.classes_ == NAMES[:classes]).all()
    assert classifier.score(X, NAMES[y]) > 0.95
    q = classifier.predict_proba(X)
    np.testing.assert_allclose(classifier.predict_log_proba(X), np.log(q), rtol=1e-12)
    expected = np.log(q[:, 1] / q[:, 0]) if classes == 2 else np.log(q)
    np.testing.assert_allclose(classifier.decision_function(X), expected, rtol=1e-9, atol=1e-12)
    decided = classifier.decision_function(X)
    decided = (decided > 0).astype(int) if classes == 2 else decided.argmax(axis=1)
    assert (classifier.predict(X) == NAMES[decided]).all()
    separated = PNMLClassifier(LogisticRegression(C=1e9, max_iter=10_000)).fit(X, y)
    assert np.isfinite(separated.decision_function(1e4 * X)).all()


def test_estimators_work_in_several_threads() -> None:
    X, y = load_iris(return_X_y=True)
    classifier = PNMLClassifier(scaled(LogisticRegression()))
    alone = cross_val_score(classifier, X, y, cv=3)
    with parallel_config(backend="threading", n_jobs=2):
        assert (cross_val_score(classifier, X, y, cv=3) == alone).all()
    classifier.fit(X, y)
    parts = Parallel(n_jobs=2, prefer="threads")(delayed(classifier.regret)(part) for part in np.array_split(X, 5))
    np.testing.assert_allclose(np.concatenate(parts), classifier.regret(X), rtol=1e-12)
