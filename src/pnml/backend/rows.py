"""Batches of rows: checked, measured, and processed in chunks that bound the memory."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import array_api_compat as compat
import array_api_compat.numpy as numpy_namespace
import numpy as np

from pnml.backend.arrays import (
    Array,
    as_array,
    has_float64,
    is_real_floating,
    is_remote,
    is_traced,
    namespace,
    precision,
    to_numpy,
    working_dtype,
)
from pnml.backend.threads import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CHUNK_BYTES = 3 << 20  # stays in a processor's cache
_REMOTE_CHUNK_BYTES = 1 << 29  # keeps a GPU busy for milliseconds
_LARGEST_NORM = 1e152  # the squares of larger rows leave float64

SMALLEST_NORM = 1e-300
"""Rows of this norm or less have no direction: 1 / norm may leave float64."""


def check_rows(rows: Array, n_features: int | None) -> Array:
    """Return ``rows`` as a finite floating-point array of shape (n, n_features); raise ``ValueError`` otherwise."""
    rows = check_shape(rows, n_features)
    check_finite(rows)
    return rows


def check_shape(rows: Array, n_features: int | None) -> Array:
    """Return ``rows`` as a floating-point array of shape (n, n_features), without checking its values."""
    rows = as_array(rows)
    if rows.ndim != 2:
        column = ": np.stack(x) joins a column of vectors" if rows.ndim == 1 and rows.dtype == object else ""
        raise ValueError(f"expected a 2-D batch of shape (rows, features), got shape {tuple(rows.shape)}{column}")
    if n_features is not None and rows.shape[1] != n_features:
        raise ValueError(f"expected rows of {n_features} features, got {rows.shape[1]}")
    if is_real_floating(rows):
        return rows
    xp = namespace(rows)
    if not xp.isdtype(rows.dtype, ("real floating", "integral", "bool")):
        frame = ": of a data frame, choose the columns of numbers, frame[names].to_numpy(float)"
        raise ValueError(f"expected rows of real numbers, got {rows.dtype}{frame if rows.dtype == object else ''}")
    return xp.astype(rows, wide_dtype(rows))


def check_finite(rows: Array, widths: Sequence[int] = ()) -> None:
    """Raise ``ValueError`` for the first value of rows (n, M) that is not finite.

    ``widths`` say how many columns the embedding and each of the layers beside it have, if there are any.
    """
    xp = namespace(rows)
    finite = xp.isfinite(rows)
    if not bool(xp.all(finite)):
        row, column = (int(i) for i in np.argwhere(~to_numpy(finite, bool))[0])
        value = float(rows[row, column])
        number = 0
        while number < len(widths) - 1 and column >= widths[number]:
            column -= widths[number]
            number += 1
        layer = f" of features[{number - 1}]" if number else ""
        raise ValueError(f"row {row} holds {value} in column {column}{layer}: every value must be finite")


def check_squares(norms: Array) -> None:
    """Raise ``ValueError`` for rows whose norms (n,) are too large to be squared."""
    fits = to_numpy(norms) <= _LARGEST_NORM
    if not fits.all():
        row = int(fits.argmin())
        raise ValueError(f"row {row} has norm {float(norms[row])}, whose square overflows: scale the rows down")


def check_norms(norms: Array) -> None:
    """Raise ``ValueError`` for rows whose norms (n,) overflow."""
    fits = to_numpy(norms < math.inf, bool)
    if not fits.all():
        row = int(fits.argmin())
        raise ValueError(
            f"row {row} has a norm beyond {float(namespace(norms).finfo(norms.dtype).max):.1e}, the largest "
            "number of its precision: scale the rows down"
        )


def wide_dtype(rows: Array) -> Any:
    """Return float64, or float32 where the library or device has no more."""
    xp = namespace(rows)
    return xp.float64 if has_float64(rows) else xp.float32


def chunk_length(rows: Array, item_bytes: int, width: int | None = None) -> int:
    """Return how many rows make a chunk: it stays in cache on the host, and keeps a GPU busy.

    A row takes ``width`` numbers of ``item_bytes`` at the same time; as many as it has when None.
    """
    size = _REMOTE_CHUNK_BYTES if is_remote(rows) else _CHUNK_BYTES
    return int(max(1, size // (item_bytes * max(1, width or int(rows.shape[1])))))


def by_chunk(function: Callable[..., Any], rows: Array, dtype: Any, *args: Any, width: int | None = None) -> Any:
    """Apply a function to chunks of rows (n, M) converted to a dtype, and concatenate what it returns.

    Chunks of NumPy rows are computed on all cores. ``function(chunk, *args)`` returns an array (k, ...) for a chunk
    (k, M), or a tuple of such; a row takes ``width`` numbers at the same time, see :func:`chunk_length`.
    """
    keep_freed_memory()
    xp = namespace(rows)
    parts = _slices(rows, chunk_length(rows, 8 if dtype == xp.float64 else 4, width))

    def work(part: slice) -> Any:
        with np.errstate(all="ignore"):  # of the thread that computes
            return function(xp.astype(rows[part, :], dtype, copy=False), *args)

    if len(parts) == 1:
        return work(parts[0])
    outputs = list(spread(work, parts) if compat.is_numpy_array(rows) else map(work, parts))
    if not isinstance(outputs[0], tuple):
        return xp.concat(outputs)
    return tuple(xp.concat(column) for column in zip(*outputs, strict=True))


def _slices(rows: Array, length: int) -> list[slice]:
    """Cut the rows into slices of at most ``length`` rows and about equal size."""
    count = max(1, -(-rows.shape[0] // length))
    step = max(1, -(-rows.shape[0] // count))
    return [slice(start, start + step) for start in range(0, max(1, rows.shape[0]), step)]


@cache
def keep_freed_memory() -> None:
    """Let the C library keep what a chunk frees for the next one.

    glibc returns memory to the system above twice the largest block that it has seen freed, and every page must then be
    asked for again, which can double the time. So show it a block that is larger than all that a chunk needs.
    """
    np.empty(8 * _CHUNK_BYTES, dtype=np.uint8)


def squares(x: Array) -> Array:
    """Return the sum of squares of every row, in one pass."""
    if type(x) is np.ndarray:
        return _vecdot(x, x)
    xp = namespace(x)
    return xp.linalg.vector_norm(x, axis=-1) ** 2 if compat.is_torch_array(x) else xp.vecdot(x, x)


_vecdot: Callable[[Any, Any], Any] = numpy_namespace.vecdot  # type: ignore[attr-defined]
if hasattr(np, "vecdot"):  # since NumPy 2.0
    _vecdot = np.vecdot


def plain_norms(x: Array, dtype: Any) -> Array:
    """Return the Euclidean norm of every row in the given dtype, into which the squares must fit."""
    xp = namespace(x)
    if type(x) is not np.ndarray and compat.is_torch_array(x):
        return xp.linalg.vector_norm(x, axis=-1, dtype=dtype)
    return xp.sqrt(squares(xp.astype(x, dtype, copy=False)))


def row_norms(x: Array) -> Array:
    """Return the Euclidean norm of every row in the dtype of ``x``, but no less than float32.

    Rows may be of any magnitude where looking at them costs nothing. On a GPU, and in a graph that is being traced,
    their squares must fit into the dtype.
    """
    return norms_and_divisors(x)[0]


def norms_and_divisors(x: Array) -> tuple[Array, Array]:
    """Return the norms of rows, and what to divide them by for norm 1: the same, where none is odd."""
    xp = namespace(x)
    dtype = working_dtype(xp, x)
    if type(x) is not np.ndarray and (is_remote(x) or is_traced()):
        norms = plain_norms(x, dtype)
        return norms, divisors(norms)
    with np.errstate(all="ignore"):
        norms = plain_norms(x, dtype)
        if bool(have_safe_squares(norms)):
            return norms, norms
        x = xp.astype(x, dtype, copy=False)
        peaks = xp.max(xp.abs(x), axis=-1, keepdims=True)
        scale = xp.where(peaks > 0, peaks, xp.ones_like(peaks))
        norms = scale[:, 0] * xp.sqrt(squares(x / scale))
        return norms, divisors(norms)


def divisors(norms: Array) -> Array:
    """Return what rows of these norms (n,) are divided by, to have norm 1.

    Rows without a direction stay as they are, divided by 1. Rows whose norm overflowed get NaN: divided by infinity,
    they would become rows of zeros, which look familiar.
    """
    xp = namespace(norms)
    known = xp.where(xp.isinf(norms), xp.full_like(norms, math.nan), norms)
    return xp.where(norms <= SMALLEST_NORM, xp.ones_like(norms), known)


def have_safe_squares(norms: Array) -> Any:
    """Return whether no square of a norm overflows or vanishes; of an array on a GPU without waiting for it."""
    largest = _LARGEST_ROOT[precision(norms) < 1e-12]
    if isinstance(norms, np.ndarray):  # in half of the time, which matters for one row
        return not norms.size or (norms.max() < largest and norms.min() > 1e3 / largest)
    return namespace(norms).all((norms < largest) & (norms > 1e3 / largest))


_LARGEST_ROOT = [math.sqrt(float(np.finfo(dtype).max)) for dtype in (np.float32, np.float64)]
