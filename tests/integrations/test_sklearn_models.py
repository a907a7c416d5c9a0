"""Which classifiers of scikit-learn are taken apart, and what the others are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from pnml import Detector, PNMLClassifier, PNMLOutlierDetector

from .rows import Matrix, anew, iris

FRESH = np.random.default_rng(0).normal(scale=2, size=(30, 4))


def searched(model: Any, *, refit: bool = True) -> Any:
    return GridSearchCV(model, {"C": [0.1, 1.0]}, cv=2, refit=refit)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of LogisticRegressionCV, about its next defaults
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(max_iter=1000),
        LogisticRegression(max_iter=1000, fit_intercept=False),
        LogisticRegressionCV(Cs=[0.1, 1.0], cv=2, max_iter=1000),
        SGDClassifier(loss="log_loss", random_state=0),
        LinearDiscriminantAnalysis(),
        make_pipeline(LogisticRegression(max_iter=1000)),
        searched(LogisticRegression(max_iter=1000)),
    ],
    ids=repr,
)
def test_models_with_probabilities_are_scored_by_their_own_last_layer(model: Any, classes: int) -> None:
    X, y = iris(classes)
    classifier, fitted = PNMLClassifier(model).fit(X, y), clone(model).fit(X, y)
    last = getattr(fitted, "best_estimator_", fitted[-1] if hasattr(fitted, "steps") else fitted)
    expected = anew(last, X, FRESH)
    np.testing.assert_allclose(classifier.regret(FRESH), expected.regret, rtol=1e-6, atol=1e-12)
    q = classifier.predict_proba(FRESH)
    # "auto" takes p of a scaled embedding for the regret; q is made of the p of the model itself
    p, t = expected.probabilities, expected.xtg[:, None]
    genie = p / (p + p**t * (1 - p))
    np.testing.assert_allclose(q, genie / genie.sum(axis=1, keepdims=True), rtol=1e-6, atol=1e-12)
    assert (classifier.predict(FRESH) == fitted.predict(FRESH)).all()
    assert (q.argmax(axis=1) == fitted.predict(FRESH)).all()


def test_a_fitted_model_is_taken_as_it_is_and_as_it_was() -> None:
    X, y = iris()
    model = LogisticRegression().fit(X[::2], y[::2])
    expected, before = anew(model, X, FRESH).regret, model.predict(FRESH)
    guarded = PNMLClassifier(model).fit(X), PNMLClassifier(FrozenEstimator(model)).fit(X, y)
    model.fit(X, 1 - (y > 0))  # the user's own model goes on
    assert (model.predict(FRESH) != before).any()
    for classifier in guarded:
        np.testing.assert_allclose(classifier.regret(FRESH), expected, rtol=1e-6, atol=1e-12)
        assert (classifier.predict(FRESH) == before).all()


def test_with_labels_a_clone_is_fitted_even_of_a_fitted_model() -> None:
    X, y = iris()
    fitted = LogisticRegression(C=0.01).fit(X[::2], y[::2])
    again = PNMLClassifier(fitted).fit(X, y).regret(FRESH)
    assert (again == PNMLClassifier(LogisticRegression(C=0.01)).fit(X, y).regret(FRESH)).all()


@pytest.mark.parametrize("kind", [PNMLClassifier, PNMLOutlierDetector])
def test_an_unfitted_model_without_labels_is_an_error(kind: Any) -> None:
    X, _ = iris()
    with pytest.raises(ValueError, match=r"a LogisticRegression, is not fitted: call fit\(X, y\) with class labels"):
        kind(LogisticRegression()).fit(X)


def test_sparsified_coefficients_are_the_same_coefficients() -> None:
    X, y = iris()
    model = LogisticRegression().fit(X, y)
    expected = PNMLClassifier(model).fit(X).regret(FRESH)
    assert (PNMLClassifier(model.sparsify()).fit(X).regret(FRESH) == expected).all()


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (GaussianNB(), "estimator is a GaussianNB: expected a classifier that ends in a linear layer"),
        (RandomForestClassifier(3), r"estimator is a RandomForestClassifier.*PNMLOutlierDetector\(\)\.fit\(X\)"),
        (LinearRegression(), "estimator is a LinearRegression"),
        (make_pipeline(StandardScaler(), GaussianNB()), "estimator is a GaussianNB"),
        (CalibratedClassifierCV(LogisticRegression(max_iter=1000), cv=2), "averages several calibrated copies"),
        (searched(LogisticRegression(), refit=False), "GridSearchCV with refit=False fits no best model"),
        (RidgeClassifier(), "RidgeClassifier has no predict_proba, and a regret is a regret of probabilities"),
        (LinearSVC(), "LinearSVC has no predict_proba"),
        (Perceptron(), "Perceptron has no predict_proba"),
        (SGDClassifier(), 'SGDClassifier has no predict_proba.*SGDClassifier\\(loss="log_loss"\\)'),
        (SVC(kernel="linear"), "SVC has no predict_proba"),
        (
            SGDClassifier(loss="modified_huber", random_state=0),
            "predict_proba of SGDClassifier is not the softmax of its last layer",
        ),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
def test_models_without_a_last_layer_or_probabilities_are_refused(estimator: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PNMLClassifier(estimator).fit(*iris())


def test_a_last_layer_with_other_rows_than_classes_is_refused() -> None:
    X, y = iris()
    model = LogisticRegression().fit(X, y)
    model.coef_ = np.repeat(model.coef_, 2, axis=0)  # as models of pairs of classes have
    model.intercept_ = np.repeat(model.intercept_, 2)
    with pytest.raises(ValueError, match="last layer of LogisticRegression has 6 rows: expected one per class, 3"):
        PNMLClassifier(model).fit(X)


ACTIVATIONS: dict[str, Any] = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
}


def hidden_layers(model: MLPClassifier, x: Matrix) -> list[Matrix]:
    layers = []
    for weight, bias in zip(model.coefs_[:-1], model.intercepts_[:-1], strict=True):
        x = ACTIVATIONS[model.activation](x @ weight + bias)
        layers.append(x)
    return layers


@pytest.fixture(scope="module")
def digits() -> tuple[Matrix, Matrix]:
    X, y = load_digits(return_X_y=True)
    return X[y < 4] / 16, y[y < 4]


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic"])
@pytest.mark.parametrize("sizes", [(16,), (24, 16)])
def test_hidden_layers_of_a_perceptron_are_its_embedding_and_features(
    digits: tuple[Matrix, Matrix], activation: str, sizes: tuple[int, ...]
) -> None:
    X, y = digits
    model = MLPClassifier(sizes, activation=activation, max_iter=1000, random_state=0).fit(X, y)
    noise = np.random.default_rng(0).uniform(size=(40, 64))
    classifier, scaler = PNMLClassifier(model).fit(X), StandardScaler().fit(X)
    (*earlier, embeddings), (*asked, asked_embeddings) = hidden_layers(model, X), hidden_layers(model, noise)
    detector = Detector(model.coefs_[-1].T, model.intercepts_[-1], input_layer=True)
    detector.fit(embeddings, features=[*earlier, scaler.transform(X)])
    expected = detector.score(asked_embeddings, features=[*asked, scaler.transform(noise)])
    np.testing.assert_allclose(classifier.regret(noise), expected, rtol=1e-9)
    assert classifier.detector_.layer_names == ("hidden 1", "input")[-len(sizes) :]
    assert (classifier.predict_proba(noise).argmax(axis=1) == model.predict(noise)).all()


def test_a_perceptron_of_two_classes_has_two_rows_in_its_last_layer(digits: tuple[Matrix, Matrix]) -> None:
    X, y = (part[digits[1] < 2] for part in digits)
    model = MLPClassifier((8,), max_iter=1000, random_state=0).fit(X, y)
    detector = PNMLClassifier(model).fit(X).detector_
    found = detector(hidden_layers(model, X)[-1], features=[X]).probabilities
    np.testing.assert_allclose(found, model.predict_proba(X), atol=1e-12)


def test_a_perceptron_without_hidden_layers_is_a_linear_model() -> None:
    X, y = iris()
    model = MLPClassifier((), max_iter=5000, random_state=0).fit(X, y)
    found = PNMLClassifier(model).fit(X).regret(FRESH)
    model.coef_, model.intercept_ = model.coefs_[0].T, model.intercepts_[0]
    np.testing.assert_allclose(found, anew(model, X, FRESH).regret, rtol=1e-6)


def test_a_perceptron_with_several_labels_a_row_is_refused(digits: tuple[Matrix, Matrix]) -> None:
    X, y = digits
    model = MLPClassifier((8,), max_iter=1000, random_state=0).fit(X, np.stack([y > 1, y % 2], axis=1))
    with pytest.raises(ValueError, match="predict_proba of MLPClassifier is not the softmax"):
        PNMLClassifier(model).fit(X)
