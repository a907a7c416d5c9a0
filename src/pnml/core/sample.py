"""A small sample of the directions of the training rows that does not depend on how they were split.

Every row gets a key, and the rows with the smallest keys are kept. That is a random sample, and the same one for any
order, any batches and any number of machines: the sample of a whole is found among the samples of its parts.

The upper half of a key is a hash of the direction of the embedding, so that another unit of length does not choose
other rows: directions are projected to a few numbers and rounded so coarsely that the rounding of float32 hardly ever
matters. The lower half is a hash of the values as they are, to recognise a row that comes again.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import Array, DeviceConstants, like, namespace, to_compute, to_numpy, working_dtype
from pnml.backend.rows import by_chunk

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

SIZE = 1024
"""How many rows are kept: enough to know a mean to about 4 % of the spread around it."""

KEYS = "sample_keys"
"""The name of the stored keys."""

_COLUMNS = 32  # that the hash reads, evenly spaced, unless most of them are zero
_MIX = (-0x61C8864680B583EB, -0x4B47D0C5A1A6BCD5)
_PROJECTIONS = 8  # of a direction
_CELLS = 1 << 14  # per unit of a projection: the rounding of float32 moves one row in 300 into another cell
_LOWER_HALF = 0xFFFFFFFF


class Recognised(NamedTuple):
    """How many rows are known to be training rows.

    Attributes:
        known: the number of rows that are in the sample.
        comparable: the number of rows that would be in the sample if they were training rows.
    """

    known: int = 0
    comparable: int = 0

    def plus(self, other: Recognised) -> Recognised:
        """Return the counts of both sets of rows together."""
        return Recognised(self.known + other.known, self.comparable + other.comparable)


class RowSample:
    """At most ``SIZE`` rows as they came, in the order of their keys.

    Args:
        keys: shape (k,), int64, ascending.
        rows: shape (k, M), in float32, or in float64 if they came so.
        classes: of the rows, shape (k,), int64; None where they are not known.

    >>> rows = np.random.default_rng(0).normal(size=(5000, 3))
    >>> whole = RowSample.of(rows)
    >>> parts = RowSample.of(rows[3000:]) + RowSample.of(rows[:1000]) + RowSample.of(rows[1000:3000])
    >>> len(whole), bool((whole.numpy() == parts.numpy()).all())
    (1024, True)
    """

    def __init__(self, keys: Array, rows: Array, classes: NDArray[np.int64] | None = None) -> None:
        self.keys = keys
        self.rows = rows
        self.classes = classes

    @classmethod
    def of(cls, rows: Array, classes: NDArray[np.int64] | None = None, *, width: int | None = None) -> RowSample:
        """Sample rows of any array library; rows on a GPU stay there.

        Args:
            rows: shape (n, M).
            classes: theirs, shape (n,).
            width: of the embedding that a row begins with; M when None.
        """
        rows = to_compute(rows)
        keys = by_chunk(_keys, rows, rows.dtype, width)
        first = _first(keys)
        xp = namespace(rows)
        kept = None if classes is None else classes[to_numpy(first, np.int64)]
        return cls(keys[first], xp.astype(rows[first], working_dtype(xp, rows), copy=False), kept)

    def __len__(self) -> int:
        return int(self.keys.shape[0])

    def __add__(self, other: RowSample) -> RowSample:
        """Return the sample of both sets of rows together, in the library of the second."""
        keys, rows = self.keys, self.rows
        if type(keys) is not type(other.keys) or compat.device(keys) != compat.device(other.keys):
            keys, rows = like(other.keys, to_numpy(keys, np.int64), None), like(other.rows, self.numpy(), None)
        xp = namespace(other.keys)
        keys, rows = xp.concat([keys, other.keys]), xp.concat([rows, other.rows])
        first = _first(keys)
        classes = None
        if self.classes is not None and other.classes is not None:
            classes = np.concatenate([self.classes, other.classes])[to_numpy(first, np.int64)]
        return RowSample(keys[first], rows[first], classes)

    def __eq__(self, other: object) -> bool:
        """Return whether both hold the same rows, to the last bit."""
        if not isinstance(other, RowSample):
            return NotImplemented
        mine, others = self.arrays(), other.arrays()
        return mine.keys() == others.keys() and all(np.array_equal(mine[name], others[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]  # it holds arrays

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return NumPy arrays to store: keys, rows and, where they are known, classes."""
        arrays = {KEYS: to_numpy(self.keys, np.int64), "sample": self.numpy()}
        if self.classes is not None:
            arrays["sample_classes"] = self.classes
        return arrays

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> RowSample | None:
        """Take from stored arrays what :meth:`arrays` gave, None if it is not among them."""
        if "sample" not in arrays:
            return None
        return cls(arrays[KEYS], arrays["sample"], arrays.get("sample_classes"))

    def recognise(self, rows: Array, *, width: int | None = None) -> Recognised:
        """Count the rows that are in the sample, by their keys.

        Rows that the sample holds more than once say nothing: they are common values, which fresh data has, too.

        Args:
            rows: shape (n, M).
            width: as for :meth:`of`.

        >>> rows = np.random.default_rng(0).normal(size=(5000, 3))
        >>> sample = RowSample.of(rows[:4000])
        >>> sample.recognise(rows[:4000])
        Recognised(known=1024, comparable=1024)
        >>> sample.recognise(rows[4000:]).known
        0
        """
        rows = to_compute(rows)
        if not rows.shape[0]:
            return Recognised()
        keys = to_numpy(by_chunk(_keys, rows, rows.dtype, width), np.int64)
        held, times = np.unique(to_numpy(self.keys, np.int64), return_counts=True)
        comparable = keys[keys <= held[-1]] if len(self) == SIZE else keys
        return Recognised(int(np.isin(keys, held[times == 1]).sum()), len(comparable))

    @property
    def repeated(self) -> float:
        """The share of rows that are there more than once; of all training rows, too, as copies have the same key.

        >>> rows = np.random.default_rng(0).normal(size=(5000, 3))
        >>> [RowSample.of(rows).repeated, round(RowSample.of(np.vstack([rows, rows[:2500]])).repeated, 1)]
        [0.0, 0.7]
        """
        _, times = np.unique(to_numpy(self.keys, np.int64), return_counts=True)
        return float(times[times > 1].sum() / max(1, len(self)))

    def numpy(self) -> NDArray[Any]:
        """Return the rows as a NumPy array, shape (k, M)."""
        return to_numpy(self.rows, None)


def _first(keys: Array) -> Array:
    """Return the indices of the smallest keys, in their order."""
    if compat.is_numpy_array(keys) and len(keys) > SIZE:  # sorting only those is faster
        few = np.flatnonzero(keys <= np.partition(keys, SIZE - 1)[SIZE - 1])
        return few[np.argsort(keys[few], kind="stable")[:SIZE]]
    return namespace(keys).argsort(keys, stable=True)[:SIZE]


def _keys(rows: Array, width: int | None = None) -> Any:
    """Return the key of every row (n, M) that begins with an embedding of a width."""
    upper, lower = _of_few_columns(_hash_direction, rows[:, :width]), _values(rows)
    return (upper >> 32 << 32) | (lower >> 32 & _LOWER_HALF)


def _values(rows: Array) -> Any:
    """Hash the values of every row (n, M)."""
    return _of_few_columns(_hash, rows)


def _of_few_columns(function: Callable[[Array], Any], rows: Array) -> Any:
    """Hash a few columns of every row (n, M), or all where those are mostly zeros, as in counts of words."""
    xp = namespace(rows)
    step = max(1, rows.shape[1] // _COLUMNS)
    few = rows[:, ::step][:, :_COLUMNS]
    keys = function(few)
    sparse = xp.sum(xp.astype(few != 0, xp.int64), axis=1) < min(_COLUMNS // 4, rows.shape[1])
    if rows.shape[1] > _COLUMNS and bool(xp.any(sparse)):
        keys[sparse] = function(rows[sparse])
    return keys


def _hash_direction(columns: Array) -> Any:
    """Hash the directions of rows (n, m); rows along an axis, which all have the same, by their values."""
    xp = namespace(columns)
    x = xp.astype(columns, xp.float64)
    peaks = xp.max(xp.abs(x), axis=1, keepdims=True)
    x = x / xp.where(peaks > 0, peaks, xp.ones_like(peaks))
    x = x / xp.sqrt(xp.sum(x * x, axis=1, keepdims=True) + (peaks == 0))
    cells = xp.astype(xp.floor(_CELLS * (x @ _axes(x.shape[1]).to(x)[0])), xp.int64)
    along_axis = xp.sum(xp.astype(x != 0, xp.int64), axis=1) < 2
    return xp.where(along_axis, _hash(columns), _mixed(cells))


@cache
def _axes(width: int) -> DeviceConstants:
    """Return what directions of a width are projected on: numbers between -1 and 1."""
    return DeviceConstants(np.random.default_rng(2).integers(-(2**62), 2**62, size=(width, _PROJECTIONS)) / 2**62)


def _hash(columns: Array) -> Any:
    """Hash the values of rows (n, m), all of their entries."""
    return _mixed(_bits(namespace(columns).astype(columns, namespace(columns).float64)))


def _mixed(numbers: Array) -> Any:
    """Hash integers (n, m) to one for each row: int64 arithmetic that wraps, the same in every library."""
    xp = namespace(numbers)
    key = xp.sum(numbers * _odd(numbers.shape[1]).to(numbers)[0], axis=1) + _MIX[0]  # zeros get no special key
    for shift, factor in zip((31, 27), _MIX, strict=True):
        key = (key ^ (key >> shift)) * factor
    return key ^ (key >> 33)


@cache
def _odd(count: int) -> DeviceConstants:
    """Return a random odd number for each column."""
    return DeviceConstants(np.random.default_rng(1).integers(-(2**62), 2**62, size=count) * 2 + 1)


def _bits(columns: Array) -> Any:
    """Read doubles as integers."""
    if compat.is_torch_array(columns):
        import torch

        return columns.contiguous().view(torch.int64)
    return np.ascontiguousarray(columns).view(np.int64)
