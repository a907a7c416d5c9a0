"""What tests of more than one folder compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax
from scipy.stats import entropy

Matrix = np.ndarray[Any, Any]

NOISE = 0.005
"""The share of labels that "auto" takes to be drawn at random."""


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


def believed(logits: Matrix, scale: str) -> Matrix:
    """Give the p (..., C) that the theorem is applied to, of the logits (..., C) at the scale's length."""
    share = NOISE if scale == "auto" else 0.0
    return np.asarray((1 - share) * softmax(logits, axis=-1) + share / logits.shape[-1])


def by_pseudo_inverse(
    weight: Matrix,
    bias: Matrix,
    train: Matrix,
    x: Matrix,
    scale: str = "auto",
    *,
    at: tuple[float, Matrix] | None = None,
) -> dict[str, Matrix]:
    """Write the method down as plainly as NumPy allows: all training rows kept, float64, no log space.

    The length and the bias are those given as ``at``, or else those of the scale.
    """
    logits = x @ weight.T + bias
    if at is None:
        at = balanced_head(train, weight, bias) if scale == "auto" else (1.0, bias)
    if scale != "natural":
        train, x = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (train, x))
    inverse = np.linalg.pinv(train, rcond=1e-7)
    h = ((x @ inverse) ** 2).sum(axis=1)
    beyond = np.linalg.norm(x - x @ inverse @ train, axis=1)
    xtg = np.where(beyond > 1e-6 * np.linalg.norm(x, axis=1), 1.0, h / (1 + h))
    p = believed(at[0] * x @ weight.T + at[1], scale)
    genie = p / (p + p ** xtg[:, None] * (1 - p))
    return {
        "logits": logits,
        "prediction": logits.argmax(axis=1),
        "probabilities": softmax(logits, axis=1),
        "pnml_probabilities": genie / genie.sum(axis=1, keepdims=True),
        "xtg": xtg,
        "regret": np.log(genie.sum(axis=1)),
    }
