"""The geometry: which directions the training rows span, and how strongly.

``h(x) = xᵀS⁺x`` with ``S = Σxxᵀ`` is the leverage of ``x``. It is finite in the span of the training rows and infinite
outside of it, so that ``xᵀg = h / (1 + h)`` covers both branches of the update rule (equation 9 of the paper).

Two tolerances decide what "outside" means, both relative and both stated here:

* An eigenvalue of S counts as zero when it is below ``max(M, 32) · ε · λ_max`` with ε of float64, the precision S is
  summed and decomposed in. Smaller eigenvalues cannot be told from rounding; larger ones are kept, because on real
  networks directions with 1e-10 of the largest eigenvalue still carry signal.
* A row is outside the span when its length beyond it is more than rounding can explain: more than the share
  ``sqrt(N · max(M, 32) · ε)`` of its length (so that no row of typical length that was summed into S is ever called
  unseen), or than ``4 ε`` of the row's own dtype (float32 embeddings carry noise of about 1e-7); and more than what
  leaks from the weakest direction kept, whose eigenvector is known to ``ε sqrt(M) λ_max / λ_min`` only.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import (
    Array,
    DeviceConstants,
    is_remote,
    like,
    namespace,
    precision,
    to_compute,
    to_numpy,
    working_dtype,
)
from pnml.backend.decompositions import eigh, triangular_factor
from pnml.backend.rows import by_chunk, check_rows, squares, wide_dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.core.correlation import Correlation

_EPS = float(np.finfo(np.float64).eps)
_BLOCK = 64  # columns
_FEW_ROWS = 4
_BLOCK_BYTES_OF_FEW = 1024  # of a row of the whitening: few rows wait for its memory
_FEW_REMOTE_ROWS = 1 << 16


class Subspace:
    """The eigenbasis of the training rows' correlation, and the leverages of rows in it.

    Args:
        eigenvalues: of Σxxᵀ, descending, shape (M,).
        eigenvectors: the matching orthonormal columns, shape (M, M).
        count: the number N of rows summed.

    Attributes:
        rank: how many eigenvalues exceed ``tolerance``.
        tolerance: the eigenvalue below which a direction counts as unseen.

    >>> from pnml import Correlation
    >>> plane = Subspace.fit(Correlation().update(np.array([[1.0, 0, 0], [0, 2.0, 0]])))
    >>> plane.rank
    2
    >>> plane.xtg(np.array([[0, 2.0, 0], [0, 0, 0.1]]))
    array([0.5, 1. ])
    """

    def __init__(self, eigenvalues: np.ndarray[Any, Any], eigenvectors: np.ndarray[Any, Any], count: int) -> None:
        self.eigenvalues = eigenvalues
        self.eigenvectors = eigenvectors
        self.count = count
        self.tolerance = eigenvalue_tolerance(eigenvalues)
        self.rank = int((eigenvalues > self.tolerance).sum())

    @classmethod
    def fit(cls, correlation: Correlation) -> Subspace:
        """Decompose a :class:`~pnml.Correlation`."""
        return cls(*eigendecompose(correlation.matrix), correlation.count)

    @property
    def n_features(self) -> int:
        """The width M of the rows."""
        return len(self.eigenvalues)

    @cached_property
    def whitening(self) -> np.ndarray[Any, Any]:
        """The factor W of S⁺ = WWᵀ, so that h(x) = ‖Wᵀx‖², (M, rank): triangular where that saves products.

        The directions of the span divided by the square roots of their eigenvalues are such a factor, and so is any
        rotation of it. One rotation leaves only zeros above the diagonal, which :func:`leverage` skips.
        """
        factor = self.eigenvectors[:, : self.rank] / np.sqrt(self.eigenvalues[: self.rank])
        if self.rank > _BLOCK:
            factor = triangular_factor(factor.T).T
        padded = np.zeros((self.n_features, self.rank + 8))  # rows a power of two apart would share cache lines
        padded[:, : self.rank] = factor
        return padded[:, : self.rank]

    @property
    def null_space(self) -> np.ndarray[Any, Any]:
        """An orthonormal basis of the directions no training row has, (M, M − rank)."""
        return self.eigenvectors[:, self.rank :]

    @cached_property
    def _basis(self) -> DeviceConstants:
        return DeviceConstants(self.whitening, self.null_space)

    @property
    def correlation(self) -> np.ndarray[Any, Any]:
        """Σxxᵀ put together again from its eigenvalues and eigenvectors, (M, M)."""
        return recompose(self.eigenvalues, self.eigenvectors)

    @property
    def spectrum(self) -> np.ndarray[Any, Any]:
        """The eigenvalues of the mean correlation Σxxᵀ/N, descending."""
        return self.eigenvalues / max(self.count, 1)

    @cached_property
    def relative_error(self) -> float:
        """How far rounding of S may move a leverage, relative to it."""
        if self.rank == 0:
            return 0.0
        return _EPS * math.sqrt(self.n_features) * float(self.eigenvalues[0] / self.eigenvalues[self.rank - 1])

    def outside_limits(self, eps: float) -> tuple[float, float]:
        """Return the limits of :func:`leverage` for rows of precision ``eps``: of the row's length, of its leverage."""
        unseen, leaked = self._outside_limits
        return min(0.5, max(unseen, 4 * eps)) ** 2, leaked

    @cached_property
    def _outside_limits(self) -> tuple[float, float]:
        unseen = math.sqrt(self.count * max(self.n_features, 32) * _EPS)
        weakest = float(self.eigenvalues[self.rank - 1]) if self.rank else 0.0
        return unseen, self.relative_error**2 * weakest

    def leverage(self, x: Array) -> Array:
        """Return h(x) = xᵀS⁺x of every row, infinite where the row leaves the span of the training rows.

        Args:
            x: rows of any array library, shape (n, M).

        Returns:
            Shape (n,), in the rows' library, device and dtype (float32 for narrower ones).
        """
        return self._by_chunk(x, leverage)

    def xtg(self, x: Array) -> Array:
        """Return xᵀg in [0, 1] of every row: 0 where the training set says everything, 1 where it says nothing.

        Args:
            x: rows of any array library, shape (n, M).

        Returns:
            Shape (n,), in the rows' library, device and dtype (float32 for narrower ones).
        """
        return self._by_chunk(x, lambda *parts: xtg(leverage(*parts)))

    def leave_one_out(self, rows: Array) -> Array:
        """Return the leverage that each *training* row would have, had it not been summed: h / (1 − h).

        A row with h = 1 is the only one in its direction: without it, it would be outside, so infinity.
        """
        return self._by_chunk(rows, lambda *parts: leave_one_out(leverage(*parts), self.relative_error))

    def gain(self, x: Array) -> np.ndarray[Any, Any]:
        """Return g of equation 9 for one row of shape (M,): how a refit with that row moves the weights."""
        row = check_rows(to_numpy(x)[None], self.n_features)[0]
        (h,) = leverage(row[None], self.whitening, self.null_space, self.outside_limits(_EPS))
        if h == math.inf:
            beyond = self.null_space.T @ row
            return np.asarray(self.null_space @ beyond / (beyond @ beyond))
        return np.asarray(self.whitening @ (self.whitening.T @ row) / (1 + h))

    def _by_chunk(self, x: Array, function: Callable[..., Array]) -> Array:
        x = check_rows(x, self.n_features)
        out = working_dtype(namespace(x), x)
        if x.shape[0] == 0:
            return namespace(x).empty(0, dtype=out, device=compat.device(x))
        rows = to_compute(x)
        xp, wide, limits = namespace(rows), wide_dtype(rows), self.outside_limits(precision(x))
        basis = self._basis.to(rows, wide)
        values = by_chunk(function, rows, wide, *basis, limits)
        largest = xp.finfo(working_dtype(xp, rows)).max
        values = xp.where(values <= largest, values, xp.full_like(values, math.inf))
        return xp.astype(values, out) if rows is x else like(x, values, out)


def eigenvalue_tolerance(eigenvalues: np.ndarray[Any, Any]) -> float:
    """Return below which eigenvalues, descending and of shape (M,), a direction counts as unseen."""
    return max(len(eigenvalues), 32) * _EPS * float(eigenvalues[0])


def eigendecompose(matrix: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the eigenvalues of a positive semi-definite matrix, descending and not negative, and its eigenvectors."""
    ascending, vectors = eigh(matrix)
    return np.maximum(ascending[::-1], 0.0), np.ascontiguousarray(vectors[:, ::-1])


def recompose(eigenvalues: np.ndarray[Any, Any], eigenvectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the matrix that has these eigenvalues and these orthonormal columns as eigenvectors."""
    return np.asarray((eigenvectors * eigenvalues) @ eigenvectors.T)


def leverage(x: Array, whitening: Array, null_space: Array, outside_limits: tuple[float, float]) -> Array:
    """Compute h of rows (n, M): matrix products only, in the arrays' own library.

    A row is outside the span when the square of its length beyond exceeds the first limit times the square of its
    whole length, plus the second limit times its leverage within.
    """
    inside = leverage_inside(x, whitening)
    if null_space.shape[1] == 0:
        return inside
    xp = namespace(x)
    beyond = squares(x @ null_space)
    of_length, of_leverage = outside_limits
    outside = beyond > of_length * squares(x) + of_leverage * inside
    return xp.where(outside, xp.full_like(inside, math.inf), inside)


def leverage_inside(x: Array, whitening: Array) -> Array:
    """Compute ‖Wᵀx‖² of rows (n, M), a block of columns of the triangular W at a time to skip its zeros."""
    rank, width = whitening.shape[1], _block_width(x)
    inside = squares(x @ whitening[:, : min(width, rank)])
    for start in range(width, rank, width):  # above the diagonal there are only zeros
        inside = inside + squares(x[:, start:] @ whitening[start:, start : min(start + width, rank)])
    return inside


def _block_width(x: Array) -> int:
    """Return how many columns of the whitening to multiply at a time.

    Narrow blocks skip more of the zeros above the diagonal, but few rows are dominated by the number of calls.
    """
    n_features: int = x.shape[1]
    if compat.is_numpy_array(x):
        return _BLOCK if len(x) >= _FEW_ROWS else _BLOCK_BYTES_OF_FEW // x.itemsize
    few = is_remote(x) and x.shape[0] < _FEW_REMOTE_ROWS
    return n_features if few else max(_BLOCK, -(-n_features // 4))


def xtg(h: Array) -> Array:
    """Turn leverage in [0, ∞] into xᵀg = h / (1 + h) in [0, 1]."""
    return (1 + h**-1) ** -1  # 1 / 0 is infinity here, so that 0 stays 0, and infinity becomes 1


def leave_one_out(h: Array, error: float) -> Array:
    """Turn the leverage of summed rows into what it would be without them; ``error`` is h's relative error."""
    xp = namespace(h)
    shared = h < 1 - max(1e-12, 64 * precision(h), error)
    held = xp.where(shared, h, xp.zeros_like(h))
    return xp.where(shared, held / (1 - held), xp.full_like(h, math.inf))
