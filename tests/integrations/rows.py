"""Small tables of numbers, and the regret computed anew, for the tests of the scikit-learn estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

Matrix = np.ndarray[Any, Any]


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


def softmax(scores: Matrix) -> Matrix:
    terms = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(terms / terms.sum(axis=1, keepdims=True))


def regret_anew(train: Matrix, x: Matrix, scores: Matrix) -> Matrix:
    """Return the regrets of rows x for linear scores, given all training rows; the constant is appended to both."""
    if scores.ndim == 1:
        scores = np.stack([np.zeros(len(scores)), scores], axis=1)
    t = xtg(with_constant(train), with_constant(x))
    return np.asarray(np.log(genies(softmax(scores), t).sum(axis=1)))
