"""Small tables of numbers, and what a detector finds that is given by hand what enters a linear model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

from pnml import Detector

if TYPE_CHECKING:
    from pnml.core.result import Result

Matrix = np.ndarray[Any, Any]


def iris(classes: int = 3) -> tuple[Matrix, Matrix]:
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X[y < classes]), y[y < classes]


def with_constant(X: Matrix) -> Matrix:
    return np.column_stack([X, np.ones(len(X))])


def anew(model: Any, train: Matrix, x: Matrix) -> Result:
    """Return what is found about rows x, given a fitted linear model and its training rows."""
    scaler = StandardScaler().fit(train)
    weight, bias = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    if len(weight) == 1:  # the score of the second of two classes
        weight, bias = np.vstack([0 * weight, weight]), np.append(0.0, bias)
    mean, unit = train.mean(axis=0), np.sqrt(train.var(axis=0).mean())
    detector = Detector(np.column_stack([weight * unit, weight @ mean + bias]), input_layer=True)
    detector.fit(with_constant((train - mean) / unit), features=[scaler.transform(train)])
    return detector(with_constant((x - mean) / unit), features=[scaler.transform(x)])
