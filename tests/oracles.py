"""What tests of more than one folder compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax
from scipy.stats import entropy

Matrix = np.ndarray[Any, Any]


def balanced_length(train: Matrix, weight: Matrix, bias: Matrix) -> float:
    """Find the length of "auto" as the root of its definition, from all training rows (N, M) in float64.

    The head must tell all of them apart: at endless length no entropy is left.
    """
    units = train / np.linalg.norm(train, axis=1, keepdims=True)

    def above_a_quarter(length: float) -> float:
        left = entropy(softmax(length * units @ weight.T + bias, axis=1), axis=1).mean()
        return float(left - entropy(softmax(bias)) / 4)

    return float(brentq(above_a_quarter, 0.0, 1e5, xtol=1e-12, rtol=1e-12))
