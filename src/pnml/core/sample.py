"""A small sample of the directions of the training rows that does not depend on how they were split.

Every row gets a key, a hash of its values, and the rows with the smallest keys are kept. That is a random sample, and
the same one for any order, any batches and any number of machines: the sample of a whole is found among the samples of
its parts.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import Array, DeviceConstants, like, namespace, to_compute, to_numpy
from pnml.backend.rows import by_chunk, row_norms

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIZE = 1024
"""How many rows are kept: enough to know a mean to about 4 % of the spread around it."""

_COLUMNS = 64  # that the hash reads, evenly spaced, unless most of them are zero
_MIX = (-0x61C8864680B583EB, -0x4B47D0C5A1A6BCD5)


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
    """At most ``SIZE`` rows, scaled to norm 1, in the order of their keys.

    Args:
        keys: shape (k,), int64, ascending.
        rows: shape (k, M), float32.
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
    def of(cls, rows: Array, classes: NDArray[np.int64] | None = None) -> RowSample:
        """Sample rows (n, M) of any array library, with their classes (n,); rows on a GPU stay there."""
        rows = to_compute(rows)
        keys = by_chunk(_keys, rows, rows.dtype)
        first = _first(keys)
        xp, rows = namespace(rows), rows[first]
        norms = row_norms(rows)
        directions = rows / xp.where(norms > 0, norms, xp.ones_like(norms))[:, None]
        kept = None if classes is None else classes[to_numpy(first, np.int64)]
        return cls(keys[first], xp.astype(directions, xp.float32, copy=False), kept)

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
        """Return whether both hold the same rows, to the last bit of float32."""
        if not isinstance(other, RowSample):
            return NotImplemented
        mine, others = self.arrays(), other.arrays()
        return mine.keys() == others.keys() and all(np.array_equal(mine[name], others[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]  # it holds arrays

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return NumPy arrays to store: keys, rows and, where they are known, classes."""
        arrays = {"sample_keys": to_numpy(self.keys, np.int64), "sample": self.numpy()}
        return arrays if self.classes is None else arrays | {"sample_classes": self.classes}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> RowSample | None:
        """Take from stored arrays what :meth:`arrays` gave, None if it is not among them."""
        if "sample" not in arrays:
            return None
        return cls(arrays["sample_keys"], arrays["sample"], arrays.get("sample_classes"))

    def recognise(self, rows: Array) -> Recognised:
        """Count the rows (n, M) that are in the sample, by their keys.

        Rows that the sample holds more than once say nothing: they are common values, which fresh data has, too.

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
        keys = to_numpy(by_chunk(_keys, rows, rows.dtype), np.int64)
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

    def numpy(self) -> NDArray[np.float32]:
        """Return the directions as a NumPy array, shape (k, M), float32."""
        return to_numpy(self.rows, np.float32)


def _first(keys: Array) -> Array:
    """Return the indices of the smallest keys, in their order."""
    if compat.is_numpy_array(keys) and len(keys) > SIZE:  # sorting only those is faster
        few = np.flatnonzero(keys <= np.partition(keys, SIZE - 1)[SIZE - 1])
        return few[np.argsort(keys[few], kind="stable")[:SIZE]]
    return namespace(keys).argsort(keys, stable=True)[:SIZE]


def _keys(rows: Array) -> Any:
    """Hash every row (n, M): a few columns of it, or all where those are mostly zeros, as in counts of words."""
    xp = namespace(rows)
    step = max(1, rows.shape[1] // _COLUMNS)
    few = rows[:, ::step][:, :_COLUMNS]
    keys = _hash(few)
    sparse = xp.sum(xp.astype(few != 0, xp.int64), axis=1) < min(_COLUMNS // 4, rows.shape[1])
    if rows.shape[1] > _COLUMNS and bool(xp.any(sparse)):
        keys[sparse] = _hash(rows[sparse])
    return keys


def _hash(columns: Array) -> Any:
    """Hash rows (n, m), all of their entries: int64 arithmetic that wraps, the same in every library."""
    xp = namespace(columns)
    bits = _bits(xp.astype(columns, xp.float64))
    key = xp.sum(bits * _odd_factors(columns), axis=1) + _MIX[0]  # zeros get no special key
    for shift, factor in zip((31, 27), _MIX, strict=True):
        key = (key ^ (key >> shift)) * factor
    return key ^ (key >> 33)


def _odd_factors(columns: Array) -> Array:
    """Return a random odd number for each column."""
    return _odd(columns.shape[1]).to(columns, namespace(columns).int64)[0]


@cache
def _odd(count: int) -> DeviceConstants:
    return DeviceConstants(np.random.default_rng(1).integers(-(2**62), 2**62, size=count) * 2 + 1)


def _bits(columns: Array) -> Any:
    """Read doubles as integers."""
    if compat.is_torch_array(columns):
        import torch

        return columns.contiguous().view(torch.int64)
    return np.ascontiguousarray(columns).view(np.int64)
