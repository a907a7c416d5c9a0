"""Test the scikit-learn estimators against explicit refitting and scikit-learn's own checks."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pnml import Detector, PNMLClassifier, PNMLOutlierDetector

from .rows import genies, iris, with_constant, xtg

Matrix = np.ndarray[Any, Any]

LINEAR = [
    LogisticRegression(max_iter=1000),
    LogisticRegression(max_iter=1000, fit_intercept=False),
    LinearDiscriminantAnalysis(),
    SGDClassifier(loss="log_loss", random_state=0),
]


class LeastSquares(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Least-squares regression on smoothed log one-hot targets, for which the theorem is exact."""

    def fit(self, X: Matrix, y: Matrix) -> LeastSquares:
        self.classes_ = np.unique(y)
        self.targets_ = np.log(np.where(y[:, None] == self.classes_, 0.98, 0.01))
        theta = np.linalg.lstsq(with_constant(X), self.targets_, rcond=None)[0]
        self.coef_, self.intercept_ = theta[:-1].T, theta[-1]
        return self

    def predict_proba(self, X: Matrix) -> Matrix:
        terms = np.exp(X @ self.coef_.T + self.intercept_)
        return np.asarray(terms / terms.sum(axis=1, keepdims=True))

    def predict(self, X: Matrix) -> Matrix:
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


def refitted_genies(model: LeastSquares, X: Matrix, x: Matrix) -> Matrix:
    """Return genie probabilities from refitting the layer with each row of ``x`` added under each class.

    Only the weights of that class are refitted; their target is the logit of probability one.
    """
    result = np.empty((len(x), len(model.classes_)))
    for i, row in enumerate(with_constant(x)):
        logits = row @ np.vstack([model.coef_.T, model.intercept_])
        rows = np.vstack([with_constant(X), row])
        for label in range(len(model.classes_)):
            target = np.append(model.targets_[:, label], np.log(np.exp(logits).sum()))
            refitted = logits.copy()
            refitted[label] = row @ np.linalg.lstsq(rows, target, rcond=None)[0]
            result[i, label] = np.exp(refitted[label]) / np.exp(refitted).sum()
    return result


def test_probabilities_and_regret_equal_those_of_refitting_with_every_label() -> None:
    X, y = iris()
    fresh = np.random.default_rng(0).normal(scale=3, size=(10, 4))
    classifier = PNMLClassifier(LeastSquares()).fit(X, y)
    genie = refitted_genies(classifier.estimator_, X, fresh)
    np.testing.assert_allclose(classifier.predict_proba(fresh), genie / genie.sum(axis=1, keepdims=True), rtol=1e-9)
    np.testing.assert_allclose(classifier.regret(fresh), np.log(genie.sum(axis=1)), rtol=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("model", LINEAR, ids=repr)
def test_probabilities_and_regret_follow_from_the_scores_of_the_model(model: Any, classes: int) -> None:
    X, y = iris(classes)
    fresh = np.random.default_rng(0).normal(scale=2, size=(30, 4))
    classifier = PNMLClassifier(model).fit(X, y)
    fitted = clone(model).fit(X, y)

    scores = fitted.decision_function(fresh)
    if classes == 2:
        scores = np.stack([np.zeros(30), scores], axis=1)
    p = np.exp(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))
    has_intercept = getattr(model, "fit_intercept", True)
    t = xtg(with_constant(X), with_constant(fresh)) if has_intercept else xtg(X, fresh)
    genie = genies(p, t)
    np.testing.assert_allclose(classifier.predict_proba(fresh), genie / genie.sum(axis=1, keepdims=True), atol=1e-12)
    np.testing.assert_allclose(classifier.regret(fresh), np.log(genie.sum(axis=1)), rtol=1e-6, atol=1e-12)
    assert (classifier.predict(fresh) == fitted.predict(fresh)).all()
    assert (classifier.predict_proba(fresh).argmax(axis=1) == fitted.predict(fresh)).all()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("model", [LogisticRegression(), LinearDiscriminantAnalysis()], ids=repr)
def test_model_probabilities_equal_predict_proba_of_softmax_models(model: Any, classes: int) -> None:
    X, y = iris(classes)
    classifier = PNMLClassifier(model).fit(X, y)
    p = clone(model).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(classifier.detector_(with_constant(X)).probabilities, p, atol=1e-12)


def test_regret_is_invariant_to_affine_maps_of_the_features() -> None:
    X, y = iris()
    rng = np.random.default_rng(0)
    mapped = X @ rng.normal(size=(4, 4)) + 100
    regret = PNMLClassifier(LinearDiscriminantAnalysis()).fit(X, y).regret(X)
    again = PNMLClassifier(LinearDiscriminantAnalysis()).fit(mapped, y).regret(mapped)
    np.testing.assert_allclose(again, regret, rtol=1e-5)


def test_string_labels_and_columns_follow_classes() -> None:
    X, y = iris()
    names = np.array(["setosa", "versicolor", "virginica"])
    classifier = PNMLClassifier().fit(X, names[y])
    assert (classifier.classes_ == names).all()
    assert (classifier.predict(X) == names[classifier.predict_proba(X).argmax(axis=1)]).all()
    assert classifier.score(X, names[y]) > 0.95


def test_float32_features_return_float32_regret() -> None:
    X, y = iris()
    narrow = PNMLClassifier().fit(X.astype(np.float32), y)
    assert narrow.regret(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(narrow.regret(X.astype(np.float32)), PNMLClassifier().fit(X, y).regret(X), rtol=1e-2)


def test_classifier_works_in_pipelines_grid_searches_clones_and_pickles() -> None:
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), PNMLClassifier(LogisticRegression()))
    search = GridSearchCV(
        pipeline, {"pnmlclassifier__estimator__C": [1e-4, 1.0]}, scoring="neg_log_loss", cv=3, error_score="raise"
    ).fit(X, y)
    assert search.best_params_ == {"pnmlclassifier__estimator__C": 1.0}
    best = search.best_estimator_
    assert best[-1].estimator_.C == 1.0
    expected = best[-1].regret(best[:-1].transform(X))
    again = clone(best).fit(X, y)
    assert (again[-1].regret(again[:-1].transform(X)) == expected).all()
    restored = pickle.loads(pickle.dumps(best))  # noqa: S301 - own bytes
    assert (restored[-1].regret(restored[:-1].transform(X)) == expected).all()


def test_fit_does_not_change_the_estimator_passed_in() -> None:
    model = LogisticRegression()
    PNMLClassifier(model).fit(*iris())
    PNMLOutlierDetector(model).fit(*iris())
    assert not hasattr(model, "coef_")


def test_methods_before_fit_raise() -> None:
    for method in ("predict", "predict_proba", "regret"):
        with pytest.raises(NotFittedError):
            getattr(PNMLClassifier(), method)(np.ones((1, 2)))
    for method in ("predict", "score_samples", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(PNMLOutlierDetector(), method)(np.ones((1, 2)))


@pytest.fixture(scope="module")
def digits() -> dict[str, Matrix]:
    """Return training and test rows of the digits 0 to 7, and three kinds of out-of-distribution rows."""
    X, y = load_digits(return_X_y=True)
    X = X / 16
    train, test, labels, _ = train_test_split(X[y < 8], y[y < 8], random_state=0, stratify=y[y < 8])
    rotated = np.rot90(test.reshape(-1, 8, 8), axes=(1, 2)).reshape(-1, 64)
    noise = np.random.default_rng(0).uniform(size=(300, 64))
    return {"train": train, "labels": labels, "test": test, "unseen": X[y >= 8], "rotated": rotated, "noise": noise}


def auroc(score: Any, normal: Matrix, outliers: Matrix) -> float:
    truth = np.repeat([0, 1], [len(normal), len(outliers)])
    return float(roc_auc_score(truth, np.concatenate([score(normal), score(outliers)])))


def test_regret_is_larger_for_unseen_digits_rotations_and_noise(digits: dict[str, Matrix]) -> None:
    classifier = PNMLClassifier(LogisticRegression(max_iter=1000)).fit(digits["train"], digits["labels"])
    assert auroc(classifier.regret, digits["test"], digits["unseen"]) > 0.9
    assert auroc(classifier.regret, digits["test"], digits["rotated"]) > 0.99
    assert auroc(classifier.regret, digits["test"], digits["noise"]) > 0.99


def test_detector_attribute_returns_the_same_regret() -> None:
    X, y = iris()
    classifier = PNMLClassifier().fit(X, y)
    assert isinstance(classifier.detector_, Detector)
    assert (classifier.detector_.score(with_constant(X)) == classifier.regret(X)).all()


@pytest.mark.parametrize(("label", "shown"), [(3, "3"), ("cat", "'cat'")])
def test_labels_of_one_class_are_refused_by_its_name(label: Any, shown: str) -> None:
    with pytest.raises(ValueError, match=f"at least two classes in y, got one class: {shown}$"):
        PNMLClassifier().fit(np.eye(4), [label] * 4)
