"""Regrets with more digits than float64 has: the oracle that scores are held to."""

from __future__ import annotations

from typing import Any

import numpy as np

Matrix = np.ndarray[Any, Any]

Wide = np.longdouble
"""Of 64 bits of mantissa on x86: 1.1e-19."""


def exact_regret(weight: Matrix, bias: Matrix, correlation: Matrix, x: Matrix) -> Matrix:
    """Give the regret (n,) of embeddings (n, M) scaled to norm 1, for a correlation (M, M) of full rank taken as exact.

    Written down as the paper has it but for the sum of genies less one, which cancels: the genies' gains are summed.
    """
    x = x.astype(Wide)
    x = x / np.sqrt((x**2).sum(axis=1, keepdims=True))
    h = (solve(factor(correlation.astype(Wide)), x.T) ** 2).sum(axis=0)
    logits = x @ weight.astype(Wide).T + bias.astype(Wide)
    logits -= logits.max(axis=1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    p, t = np.exp(log_p), (h / (1 + h))[:, None]
    genie = p / (p + np.exp(t * log_p) * -np.expm1(log_p))
    return np.asarray(np.log1p((genie * -np.expm1(log_p) * -np.expm1(t * log_p)).sum(axis=1)))


def factor(matrix: Matrix) -> Matrix:
    """Give the Cholesky factor L of LLᵀ = matrix, column by column, in the matrix's own precision."""
    lower = np.zeros_like(matrix)
    for j in range(len(matrix)):
        column = matrix[j:, j] - lower[j:, :j] @ lower[j, :j]
        lower[j:, j] = column / np.sqrt(column[0])
    return lower


def solve(lower: Matrix, columns: Matrix) -> Matrix:
    """Solve L y = columns by forward substitution."""
    y = np.array(columns)
    for j in range(len(lower)):
        y[j] = (y[j] - lower[j, :j] @ y[:j]) / lower[j, j]
    return y
