"""Test the scikit-learn estimators against explicit refitting and scikit-learn's own checks."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.covariance import EmpiricalCovariance
from sklearn.datasets import load_digits, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from pnml import Detector, PNMLClassifier, PNMLOutlierDetector

Matrix = np.ndarray[Any, Any]

LINEAR = [
    LogisticRegression(max_iter=1000),
    LogisticRegression(max_iter=1000, fit_intercept=False),
    LinearDiscriminantAnalysis(),
    RidgeClassifier(),
    SGDClassifier(random_state=0),
    Perceptron(),
    LinearSVC(),
]


@parametrize_with_checks(  # type: ignore[untyped-decorator]  # scikit-learn has no types
    [
        PNMLClassifier(),
        PNMLClassifier(LinearDiscriminantAnalysis()),
        PNMLOutlierDetector(),
        PNMLOutlierDetector(RidgeClassifier(), contamination=0.25),
    ]
)
def test_estimators_pass_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def iris(classes: int = 3) -> tuple[Matrix, Matrix]:
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X[y < classes]), y[y < classes]


def with_constant(X: Matrix) -> Matrix:
    return np.hstack([X, np.ones((len(X), 1))])


def xtg(train: Matrix, x: Matrix) -> Matrix:
    h = ((x @ np.linalg.pinv(train)) ** 2).sum(axis=1)
    return np.asarray(h / (1 + h))


def genies(p: Matrix, t: Matrix) -> Matrix:
    return np.asarray(p / (p + p ** t[:, None] * (1 - p)))


class LeastSquares(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Least-squares regression on smoothed log one-hot targets, for which the theorem is exact."""

    def fit(self, X: Matrix, y: Matrix) -> LeastSquares:
        self.classes_ = np.unique(y)
        self.targets_ = np.log(np.where(y[:, None] == self.classes_, 0.98, 0.01))
        theta = np.linalg.lstsq(with_constant(X), self.targets_, rcond=None)[0]
        self.coef_, self.intercept_ = theta[:-1].T, theta[-1]
        return self

    def predict(self, X: Matrix) -> Matrix:
        return np.asarray(self.classes_[(X @ self.coef_.T + self.intercept_).argmax(axis=1)])


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


@pytest.mark.parametrize(
    ("estimator", "classes", "message"),
    [
        (GaussianNB(), 3, "estimator is a GaussianNB: expected a linear classifier"),
        (LinearRegression(), 3, "estimator is a LinearRegression"),
        (
            make_pipeline(StandardScaler(), LogisticRegression()),
            3,
            "estimator is a Pipeline.* Put PNMLClassifier into pipelines",
        ),
        (SVC(kernel="linear"), 3, "predictions of SVC are not the classes of largest"),
        (SVC(kernel="linear", decision_function_shape="ovo"), 3, "predictions of SVC are not the classes of largest"),
        (SVC(kernel="linear"), 4, "coef_ of SVC has 6 rows: expected one per class, 4"),
    ],
)
def test_fit_raises_for_models_that_are_not_linear_classifiers(estimator: Any, classes: int, message: str) -> None:
    X, y = load_digits(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        PNMLClassifier(estimator).fit(X[y < classes], y[y < classes])


def test_linear_svc_of_two_classes_is_accepted() -> None:
    X, y = iris(2)
    assert PNMLClassifier(SVC(kernel="linear")).fit(X, y).score(X, y) == 1


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


def test_outlier_detector_has_the_interface_of_isolation_forest_and_higher_auroc(digits: dict[str, Matrix]) -> None:
    pnml_detector = PNMLOutlierDetector(LogisticRegression(max_iter=1000)).fit(digits["train"], digits["labels"])
    forest = IsolationForest(random_state=0, contamination=0.1).fit(digits["train"])
    for detector in (pnml_detector, forest):
        assert set(detector.predict(digits["train"])) == {-1, 1}
        assert np.mean(detector.predict(digits["train"]) == -1) == pytest.approx(0.1, abs=0.01)
        assert auroc(lambda X, d=detector: -d.score_samples(X), digits["test"], digits["noise"]) > 0.99
        for name in ("test", "unseen"):
            decision = detector.decision_function(digits[name])
            np.testing.assert_allclose(decision, detector.score_samples(digits[name]) - detector.offset_)
            assert ((decision < 0) == (detector.predict(digits[name]) == -1)).all()
    unseen = [
        auroc(lambda X, d=d: -d.score_samples(X), digits["test"], digits["unseen"]) for d in (pnml_detector, forest)
    ]
    assert unseen[0] > unseen[1] + 0.2


def test_outlier_scores_with_labels_are_negative_regrets() -> None:
    X, y = iris()
    detector = PNMLOutlierDetector(contamination=0.2).fit(X, y)
    assert (detector.score_samples(X) == -PNMLClassifier().fit(X, y).regret(X)).all()
    assert (detector.predict(X) == -1).sum() == 30
    assert (PNMLOutlierDetector(contamination=0.2).fit_predict(X, y) == detector.predict(X)).all()
    assert (PNMLOutlierDetector(contamination=0.2).fit_predict(X) != detector.predict(X)).any()


def test_outlier_scores_without_labels_rank_by_mahalanobis_distance() -> None:
    X, _ = iris()
    fresh = np.random.default_rng(0).normal(scale=3, size=(50, 4))
    detector = PNMLOutlierDetector().fit(X)
    distance = EmpiricalCovariance().fit(X).mahalanobis(fresh)
    assert (np.argsort(-detector.score_samples(fresh)) == np.argsort(distance)).all()
    t = xtg(with_constant(X), with_constant(fresh))
    np.testing.assert_allclose(detector.score_samples(fresh), -np.log(2 / (1 + 2**-t)))


@pytest.mark.parametrize("contamination", [0, 0.6, -1])
def test_contamination_out_of_range_raises(contamination: float) -> None:
    with pytest.raises(ValueError, match=rf"contamination is {contamination}: .*in \(0, 0\.5\]"):
        PNMLOutlierDetector(contamination=contamination).fit(*iris())


def test_detector_attribute_returns_the_same_regret() -> None:
    X, y = iris()
    classifier = PNMLClassifier().fit(X, y)
    assert isinstance(classifier.detector_, Detector)
    assert (classifier.detector_.score(with_constant(X)) == classifier.regret(X)).all()
