"""The statistic: Σxxᵀ and N, summed in float64 over any number of batches, processes and machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import array_api_compat as compat
import numpy as np

from pnml._arrays import Array, has_float64, like, to_numpy
from pnml._rows import check_rows, chunks, row_norms, unit_rows
from pnml._state import load_state, save_state

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

    >>> rows = np.arange(6.0).reshape(3, 2)
    >>> statistic = Correlation().update(rows)
    >>> statistic.matrix
    array([[20., 26.],
           [26., 35.]])
    >>> statistic == Correlation().update(rows[:1]) + Correlation().update(rows[1:])
    True
    """

    def __init__(self, n_features: int | None = None, *, unit_norm: bool = False) -> None:
        self.n_features = n_features
        self.unit_norm = unit_norm
        self.count = 0
        self._sum: Array = None
        self._norms: Array = None

    def update(self, rows: Array) -> Correlation:
        """Add a batch of shape (n, M) and return self; a bad batch raises ``ValueError`` and changes nothing."""
        rows = check_rows(rows, self.n_features)
        if not has_float64(rows):
            rows = to_numpy(rows)
        total, norms = self._sum, self._norms
        for start, x in chunks(rows):
            lengths = row_norms(x)
            scaled = unit_rows(x, lengths, first=start) if self.unit_norm else x
            total = _add(total, scaled.T @ scaled)
            norms = _add(norms, compat.array_namespace(x).sum(lengths))
        self._sum, self._norms = total, norms
        self.count += rows.shape[0]
        self.n_features = rows.shape[1]
        return self

    @property
    def matrix(self) -> np.ndarray[Any, Any]:
        """Σxxᵀ as a float64 NumPy array of shape (M, M)."""
        if self._sum is None:
            raise ValueError("the Correlation is empty: call update(rows) with at least one row first")
        return to_numpy(self._sum)

    @property
    def mean_norm(self) -> float:
        """The mean Euclidean norm of the rows as they came, before any scaling."""
        return float(self._norms) / self.count if self.count else 0.0

    def __add__(self, other: Correlation) -> Correlation:
        """Merge two statistics of disjoint sets of rows into a new one."""
        if not isinstance(other, Correlation):
            return NotImplemented
        if self.unit_norm != other.unit_norm:
            raise ValueError(
                "one Correlation scales its rows to unit norm and the other does not: they cannot be merged"
            )
        if self.count and other.count and self.n_features != other.n_features:
            raise ValueError(f"cannot merge Correlations of width {self.n_features} and {other.n_features}")
        merged = Correlation(self.n_features or other.n_features, unit_norm=self.unit_norm)
        merged.count = self.count + other.count
        parts = [part for part in (self, other) if part.count]
        if parts:
            merged._sum = sum(part.matrix for part in parts)
            merged._norms = np.float64(sum(part.mean_norm * part.count for part in parts))
        return merged

    def __eq__(self, other: object) -> bool:
        """Tell whether both hold the same numbers, bit for bit."""
        if not isinstance(other, Correlation):
            return NotImplemented
        same = (self.count, self.unit_norm, self.n_features) == (
            other.count,
            other.unit_norm,
            other.n_features,
        )
        return same and (self.count == 0 or np.array_equal(self.matrix, other.matrix))

    __hash__ = None  # type: ignore[assignment]  # mutable, like the arrays it holds

    def __repr__(self) -> str:
        return f"Correlation(n_features={self.n_features}, count={self.count}, unit_norm={self.unit_norm})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistic to a safetensors file."""
        info = {"count": self.count, "mean_norm": self.mean_norm, "unit_norm": self.unit_norm}
        save_state(path, _KIND, _VERSION, {"sum": self.matrix}, info)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Correlation:
        """Read a statistic written by :meth:`save`."""
        arrays, info = load_state(path, _KIND, _VERSION)
        return cls.restore(arrays["sum"], info["count"], info["mean_norm"], unit_norm=info["unit_norm"])

    @classmethod
    def restore(
        cls, matrix: np.ndarray[Any, Any], count: int, mean_norm: float, *, unit_norm: bool = False
    ) -> Correlation:
        """Make a statistic from sums computed elsewhere: Σxxᵀ (M, M), N, and the rows' mean norm before scaling."""
        statistic = cls(len(matrix), unit_norm=unit_norm)
        statistic.count, statistic._sum, statistic._norms = count, matrix, np.float64(mean_norm * count)
        return statistic


def _add(state: Array, part: Array) -> Array:
    """Add a part to the running state, which follows the batches to their library and device."""
    if state is None:
        return part
    if type(state) is not type(part) or compat.device(state) != compat.device(part):
        state = like(part, to_numpy(state))
    return state + part
