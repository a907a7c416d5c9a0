"""What the properties of the core are tried on, and the naive computations they are held to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from pnml import Correlation, Subspace

Matrix = np.ndarray[Any, Any]
Draw = st.DrawFn

EPS = float(np.finfo(np.float64).eps)

modest = settings(max_examples=25, deadline=None, derandomize=True, database=None)

seeds = st.integers(0, 2**32 - 1)
xtgs = st.sampled_from([0.0, 1e-12, 0.5, 1 - 1e-12, 1.0]) | st.floats(0, 1)


@st.composite
def log_probabilities(draw: Draw, max_classes: int = 8) -> Matrix:
    """Log-probabilities of one sample: flat, confident, or with impossible classes."""
    logits = st.floats(-700, 0)
    drawn = [draw(logits), *draw(st.lists(logits | st.just(-math.inf), min_size=1, max_size=max_classes - 1))]
    z = np.array(drawn) - max(drawn)
    return np.asarray(z - np.logaddexp.reduce(z))


@st.composite
def probabilities(draw: Draw, max_classes: int = 8) -> Matrix:
    """Probabilities of one sample, some of them 0, 1 or close to either."""
    p = np.exp(draw(log_probabilities(max_classes)))
    return np.asarray(p / p.sum())


@st.composite
def matrices(draw: Draw, n_rows: int, n_features: int) -> Matrix:
    """Standard normal rows."""
    return np.random.default_rng(draw(seeds)).normal(size=(n_rows, n_features))


@st.composite
def training_rows(
    draw: Draw, *, n_features: int | None = None, min_rows: int = 1, max_rows: int = 10, condition: float = 100.0
) -> Matrix:
    """Rows of any rank, more or fewer than features, whose singular values lie within a factor ``condition``."""
    n_features = n_features or draw(st.integers(1, 6))
    n_rows = draw(st.integers(min_rows, max_rows))
    rank = draw(st.integers(1, min(n_rows, n_features)))
    return with_singular_values(
        np.geomspace(1, 1 / condition, rank) * draw(st.sampled_from([1e-3, 1.0, 1e3])),
        (n_rows, n_features),
        np.random.default_rng(draw(seeds)),
    )


@st.composite
def rows_and_queries(draw: Draw, condition: float = 100.0) -> tuple[Matrix, Matrix]:
    """Training rows, and rows to ask about: the training rows, combinations of them, anything, and nothing."""
    rows = draw(training_rows(condition=condition))
    combined = draw(matrices(2, len(rows))) @ rows
    anything = draw(matrices(2, rows.shape[1])) * np.abs(rows).max()
    return rows, np.vstack([rows, combined, anything, np.zeros((1, rows.shape[1]))])


def with_singular_values(values: Matrix, shape: tuple[int, int], rng: np.random.Generator) -> Matrix:
    """Random rows of the given shape and the given non-zero singular values."""
    left, _ = np.linalg.qr(rng.normal(size=(shape[0], len(values))))
    right, _ = np.linalg.qr(rng.normal(size=(shape[1], len(values))))
    return np.asarray((left * values) @ right.T)


def home(array: Any) -> Matrix:
    """The array as float64 in NumPy, whatever its library."""
    if hasattr(array, "detach"):
        array = array.detach().double().numpy()
    elif hasattr(array, "__array_namespace__") and not hasattr(array, "__array__"):
        array = np.from_dlpack(array)
    return np.asarray(array, dtype=np.float64)


def _seen(rows: Matrix) -> tuple[Matrix, Matrix]:
    """Singular values and right singular vectors of the directions the rows have."""
    _, values, vectors = np.linalg.svd(rows, full_matrices=False)
    kept = values > 1e-9 * values.max(initial=0.0)
    return values[kept], vectors[kept]


def naive_leverage(rows: Matrix, x: Matrix) -> Matrix:
    """H of each x by the singular values of the rows themselves, infinite outside of their span."""
    values, vectors = _seen(rows)
    inside = x @ vectors.T
    outside = np.linalg.norm(x - inside @ vectors, axis=1) > 1e-7 * np.linalg.norm(x, axis=1)
    return np.where(outside, np.inf, ((inside / values) ** 2).sum(axis=1))


def rounding(rows: Matrix) -> float:
    """The relative error a leverage may have: ten times ε times the condition of Σxxᵀ on its span."""
    values, _ = _seen(rows)
    return 10 * EPS * float((values[0] / values[-1]) ** 2)


def fit(rows: Any) -> Subspace:
    """The geometry of rows."""
    return Subspace.fit(Correlation().update(rows))


def same_leverage(result: Any, expected: Matrix, rtol: float) -> None:
    """Both are infinite in the same places, and agree elsewhere."""
    np.testing.assert_array_equal(np.isinf(home(result)), np.isinf(expected))
    np.testing.assert_allclose(home(result), expected, rtol=rtol)
