"""What tests of more than one folder compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax
from scipy.stats import entropy

Matrix = np.ndarray[Any, Any]


def balanced_head(train: Matrix, weight: Matrix, bias: Matrix) -> tuple[float, Matrix]:
    """Find the length of "auto" as the root of its definition, from all training rows (N, M), and its bias.

    The head must tell all of them apart: at endless length no entropy is left.
    """
    norms = np.linalg.norm(train, axis=1, keepdims=True)
    logits = train / norms @ weight.T + bias / norms.mean()

    def above_a_quarter(length: float) -> float:
        return float(entropy(softmax(length * logits, axis=1), axis=1).mean() - np.log(len(bias)) / 4)

    length = float(brentq(above_a_quarter, 0.0, 1e5, xtol=1e-12, rtol=1e-12))
    return length, bias * length / norms.mean()
