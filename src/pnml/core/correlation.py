"""The statistic of the training rows: Σxxᵀ, N and a small sample, summed over batches, processes and machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import Array, detached, like, namespace, to_compute, to_numpy
from pnml.backend.products import sum_of_products
from pnml.backend.rows import (
    SMALLEST_NORM,
    check_finite,
    check_shape,
    check_squares,
    have_safe_squares,
    row_norms,
    wide_dtype,
)
from pnml.backend.state import load_state, save_state
from pnml.core.sample import RowSample

if TYPE_CHECKING:
    import os

_KIND, _VERSION = "pnml.correlation", 1


class Correlation:
    """The correlation Σxxᵀ of the training rows, in O(M²) memory however many rows there are.

    It is a sum, so partial statistics add up: over batches with :meth:`update`, over processes and machines with ``+``.
    Batches may come from any array library; PyTorch batches are summed on their own device.

    Args:
        n_features: width M of the rows; taken from the first batch when left out.
        unit_norm: scale every row to Euclidean norm 1 before it is added.

    Attributes:
        count: the number N of rows summed.
        left_out: how many rows of norm 0 could not be scaled to norm 1 and were left out.
        sample: a :class:`~pnml.core.sample.RowSample` of the rows as they came, None while there are none.

    >>> rows = np.array([[3.0, 4.0], [0.0, 5.0], [8.0, 6.0]])
    >>> statistic = Correlation().update(rows)
    >>> statistic.matrix
    array([[73., 60.],
           [60., 77.]])
    >>> statistic == Correlation().update(rows[:1]) + Correlation().update(rows[1:])
    True
    """

    def __init__(self, n_features: int | None = None, *, unit_norm: bool = False) -> None:
        self.n_features = n_features
        self.unit_norm = unit_norm
        self.count = 0
        self.left_out = 0
        self._sums: _Sum = None
        self._norms: _Sum = None
        self.sample: RowSample | None = None

    def update(self, rows: Array) -> Correlation:
        """Add a batch of shape (n, M) and return self; a bad batch raises ``ValueError`` and changes nothing.

        With ``unit_norm``, rows of norm 0 are left out and counted in ``left_out``.
        """
        rows = to_compute(detached(check_shape(rows, self.n_features)))
        given = rows.shape[0]
        if given:
            with np.errstate(all="ignore"):
                products, norms = sum_of_products(rows, unit_norm=self.unit_norm)
            if not have_safe_squares(norms):  # the first time that a device is waited for
                rows, norms = self._usable(rows)
                if not rows.shape[0]:
                    self.n_features, self.left_out = rows.shape[1], self.left_out + given
                    return self
                products, _ = sum_of_products(rows / norms[:, None] if self.unit_norm else rows, unit_norm=False)
            self._sums = _add(self._sums, products)
            self._norms = _add(self._norms, namespace(norms).sum(norms))
            self.sample = self._with(RowSample.of(rows))
        self.count += rows.shape[0]
        self.n_features, self.left_out = rows.shape[1], self.left_out + given - rows.shape[0]
        return self

    def _usable(self, rows: Array) -> tuple[Array, Array]:
        """Return the rows that can be added, in float64, and their norms; raise ``ValueError`` for a bad one."""
        check_finite(rows)
        rows = namespace(rows).astype(rows, wide_dtype(rows))
        norms = row_norms(rows)
        if not self.unit_norm:
            check_squares(norms)
            return rows, norms
        has_direction = norms > SMALLEST_NORM
        return rows[has_direction], norms[has_direction]

    @property
    def matrix(self) -> np.ndarray[Any, Any]:
        """Σxxᵀ as a float64 NumPy array of shape (M, M)."""
        if self._sums is None:
            raise ValueError("the Correlation is empty: call update(rows) with at least one row first")
        return _total(self._sums)

    @property
    def mean_norm(self) -> float:
        """The mean Euclidean norm of the rows as they came, before any scaling."""
        return self.norm_sum / self.count if self.count else 0.0

    @property
    def norm_sum(self) -> float:
        """The sum of the rows' Euclidean norms as they came."""
        return 0.0 if self._norms is None else float(_total(self._norms))

    def _with(self, sample: RowSample | None) -> RowSample | None:
        """Return the sample merged with that of further rows; None if either was restored without one."""
        if self.count == 0:
            return sample
        return None if self.sample is None or sample is None else self.sample + sample

    def __add__(self, other: Correlation) -> Correlation:
        """Merge two statistics of disjoint sets of rows into a new one."""
        if not isinstance(other, Correlation):
            return NotImplemented
        if self.unit_norm != other.unit_norm:
            raise ValueError(
                "one Correlation scales its rows to unit norm and the other does not: they cannot be merged"
            )
        if None not in {self.n_features, other.n_features} and self.n_features != other.n_features:
            raise ValueError(f"cannot merge Correlations of width {self.n_features} and {other.n_features}")
        if not (self.count and other.count):
            merged = (self if self.count else other)._copy()
            merged.n_features = self.n_features if self.n_features is not None else other.n_features
            merged.left_out = self.left_out + other.left_out
            return merged
        return Correlation.restore(
            self.matrix + other.matrix,
            self.count + other.count,
            self.norm_sum + other.norm_sum,
            unit_norm=self.unit_norm,
            sample=self._with(other.sample),
            left_out=self.left_out + other.left_out,
        )

    def _copy(self) -> Correlation:
        copy = Correlation(self.n_features, unit_norm=self.unit_norm)
        copy.count, copy.left_out = self.count, self.left_out
        copy._sums, copy._norms, copy.sample = self._sums, self._norms, self.sample
        return copy

    def __eq__(self, other: object) -> bool:
        """Return whether both hold the same numbers, bit for bit."""
        if not isinstance(other, Correlation):
            return NotImplemented
        mine = self.n_features, self.count, self.left_out, self.unit_norm, self.norm_sum
        if mine != (other.n_features, other.count, other.left_out, other.unit_norm, other.norm_sum):
            return False
        if self.count == 0:
            return True
        return np.array_equal(self.matrix, other.matrix) and self.sample == other.sample

    __hash__ = None  # type: ignore[assignment]  # mutable, like the arrays it holds

    def __repr__(self) -> str:
        return f"Correlation(n_features={self.n_features}, count={self.count}, unit_norm={self.unit_norm})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistic to a safetensors file."""
        info = {
            "count": self.count,
            "norm_sum": self.norm_sum,
            "unit_norm": self.unit_norm,
            "left_out": self.left_out,
        }
        held = {} if self.sample is None else self.sample.arrays()
        save_state(path, _KIND, _VERSION, {"sum": self.matrix, **held}, info)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Correlation:
        """Read a statistic written by :meth:`save`."""
        arrays, info = load_state(path, _KIND, _VERSION)
        return cls.restore(
            arrays["sum"],
            info["count"],
            info["norm_sum"],
            unit_norm=info["unit_norm"],
            sample=RowSample.from_arrays(arrays),
            left_out=info.get("left_out", 0),
        )

    @classmethod
    def restore(
        cls,
        matrix: np.ndarray[Any, Any],
        count: int,
        norm_sum: float,
        *,
        unit_norm: bool = False,
        sample: RowSample | None = None,
        left_out: int = 0,
    ) -> Correlation:
        """Return a statistic made of sums computed elsewhere: Σxxᵀ (M, M), N, and Σ‖x‖ of the rows before scaling.

        Without a ``sample`` of those rows it serves every ``embedding_scale`` but "auto".
        """
        statistic = cls(len(matrix), unit_norm=unit_norm)
        statistic.count, statistic._sums, statistic._norms = count, (matrix, None), (np.float64(norm_sum), None)
        statistic.sample, statistic.left_out = sample, left_out
        return statistic


_Sum: TypeAlias = "tuple[Array, Array] | None"
"""A running sum and its accumulated rounding error, or None before the first part."""


def _add(state: _Sum, part: Array) -> _Sum:
    """Add a part by compensated summation; the state moves to the part's library and device."""
    if state is None:
        return part, None
    total, lost = state
    if type(total) is not type(part) or compat.device(total) != compat.device(part):
        total, lost = like(part, to_numpy(total)), None if lost is None else like(part, to_numpy(lost))
    new = total + part
    taken = new - total
    rounding = (total - (new - taken)) + (part - taken)
    return new, rounding if lost is None else lost + rounding


def _total(state: tuple[Array, Array]) -> np.ndarray[Any, Any]:
    total, lost = state
    return to_numpy(total if lost is None else total + lost)
