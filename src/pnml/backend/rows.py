"""Batches of rows: checked, measured, and cut into chunks that bound the memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import (
    Array,
    as_array,
    has_float64,
    is_real_floating,
    is_remote,
    precision,
    to_numpy,
    working_dtype,
)
from pnml.backend.threads import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CHUNK_BYTES = 3 << 20  # stays in a processor's cache
REMOTE_CHUNK_BYTES = 1 << 29  # keeps a GPU busy for milliseconds
_LARGEST_NORM = 1e152  # beyond it, squares leave float64
_SMALLEST_NORM = 1e-300  # below it, 1 / norm may


def check_rows(rows: Array, n_features: int | None) -> Array:
    """Return ``rows`` as a finite floating-point array of shape (n, n_features), or say what is wrong with them."""
    rows = check_shape(rows, n_features)
    check_finite(rows)
    return rows


def check_shape(rows: Array, n_features: int | None) -> Array:
    """Return ``rows`` as a floating-point array of shape (n, n_features) without looking at its values."""
    rows = as_array(rows)
    xp = compat.array_namespace(rows)
    if rows.ndim != 2:
        raise ValueError(f"expected a 2-D batch of shape (rows, features), got shape {tuple(rows.shape)}")
    if n_features is not None and rows.shape[1] != n_features:
        raise ValueError(f"expected rows of {n_features} features, got {rows.shape[1]}")
    if not xp.isdtype(rows.dtype, ("real floating", "integral", "bool")):
        raise ValueError(f"expected rows of real numbers, got {rows.dtype}")
    return rows if is_real_floating(rows) else xp.astype(rows, wide_dtype(rows))


def check_finite(rows: Array) -> None:
    """Refuse rows (n, M) with a value that is not finite, by its place."""
    xp = compat.array_namespace(rows)
    finite = xp.isfinite(rows)
    if not bool(xp.all(finite)):
        row, column = (int(i) for i in np.argwhere(~to_numpy(finite, bool))[0])
        raise ValueError(f"row {row} holds {float(rows[row, column])} in column {column}: every value must be finite")


def check_lengths(norms: Array, *, unit_norm: bool) -> None:
    """Refuse rows by their norms (n,): those without any length to scale, or of one whose square overflows."""
    fit = to_numpy((norms > _SMALLEST_NORM) & (norms < math.inf) if unit_norm else norms <= _LARGEST_NORM, bool)
    if not fit.all():
        row = int(fit.argmin())
        what = " and cannot be scaled to norm 1: leave such rows out"
        if not unit_norm:
            what = ", whose square overflows: scale the rows down"
        raise ValueError(f"row {row} has norm {float(norms[row])}{what}")


def wide_dtype(rows: Array) -> Any:
    """Return float64, or float32 where the library or device has no more."""
    xp = compat.array_namespace(rows)
    return xp.float64 if has_float64(rows) else xp.float32


def is_narrow(rows: Array) -> bool:
    """Tell whether the squares of whatever the rows hold fit into their wide dtype: those of float32 into float64."""
    return has_float64(rows) and precision(rows) > 1e-12


def on_host(rows: Array) -> bool:
    """Tell whether the rows are memory that NumPy can work on: a NumPy array or a PyTorch tensor of the CPU."""
    return compat.is_numpy_array(rows) or (compat.is_torch_array(rows) and not is_remote(rows))


def as_numpy_view(rows: Array) -> Array:
    """Return rows on the host as NumPy sees them: two libraries with threads get into each other's way."""
    if not compat.is_torch_array(rows):
        return rows
    return (rows if str(rows.dtype) != "torch.bfloat16" else rows.float()).numpy()  # of which NumPy knows nothing


def chunk_length(rows: Array, dtype: Any) -> int:
    """Return how many rows make a chunk in the given dtype: such that it stays in cache, or is worth a GPU's while."""
    size = REMOTE_CHUNK_BYTES if is_remote(rows) else _CHUNK_BYTES
    item = int(compat.array_namespace(rows).finfo(dtype).bits) // 8
    return int(max(1, size // (item * max(1, int(rows.shape[1])))))


def chunks(rows: Array, dtype: Any = None) -> Iterator[Array]:
    """Cut rows (n, M) into pieces of one dtype, by default their own."""
    xp = compat.array_namespace(rows)
    return (xp.astype(rows[part, :], dtype or rows.dtype, copy=False) for part in _parts(rows, dtype or rows.dtype))


def by_chunk(function: Callable[[Array], Any], rows: Array, dtype: Any = None) -> list[Any]:
    """Give what a function makes of each chunk of rows (n, M); on the host, many chunks are worked on at a time."""
    xp = compat.array_namespace(rows)
    dtype = rows.dtype if dtype is None else dtype

    def work(part: slice) -> Any:
        with np.errstate(all="ignore"):  # which every thread has its own of
            return function(xp.astype(rows[part, :], dtype, copy=False))

    return list(spread(work, _parts(rows, dtype), rows))


def _parts(rows: Array, dtype: Any) -> list[slice]:
    """Return where the chunks are."""
    _keep_memory()
    count = -(-rows.shape[0] // chunk_length(rows, dtype))
    step = max(1, -(-rows.shape[0] // max(1, count)))  # as equal as can be: compiled code is made for one shape
    return [slice(start, min(start + step, rows.shape[0])) for start in range(0, rows.shape[0], step)]


def _keep_memory() -> None:
    """Let the C library keep what a chunk frees for the next one.

    glibc gives memory back to the system above twice the largest block that it has seen freed, and every page must
    then be asked for again, which can double the time. So show it a block that is larger than all a chunk needs.
    """
    np.empty(8 * _CHUNK_BYTES, dtype=np.uint8)


def squares(x: Array) -> Array:
    """Sum of squares of every row, in one pass."""
    xp = compat.array_namespace(x)
    return xp.linalg.vector_norm(x, axis=-1) ** 2 if compat.is_torch_array(x) else xp.vecdot(x, x)


def plain_norms(x: Array, dtype: Any) -> Array:
    """Euclidean norm of every row in the given dtype, into which the squares must fit."""
    xp = compat.array_namespace(x)
    if compat.is_torch_array(x):
        return xp.linalg.vector_norm(x, axis=-1, dtype=dtype)
    return xp.sqrt(squares(xp.astype(x, dtype, copy=False)))


def row_norms(x: Array) -> Array:
    """Euclidean norm of every row in the dtype of ``x``, but no less than float32.

    Rows may be of any magnitude where it costs nothing to look at them. On a GPU, and in a graph that is being traced,
    their squares must fit into the dtype.
    """
    xp = compat.array_namespace(x)
    dtype = working_dtype(xp, x)
    if is_remote(x) or _is_traced(x):
        return plain_norms(x, dtype)
    with np.errstate(all="ignore"):
        norms = plain_norms(x, dtype)
        if are_ordinary(norms):
            return norms
        x = xp.astype(x, dtype, copy=False)
        peaks = xp.max(xp.abs(x), axis=-1, keepdims=True)
        scale = xp.where(peaks > 0, peaks, xp.ones_like(peaks))
        return scale[:, 0] * xp.sqrt(squares(x / scale))


def are_ordinary(norms: Array) -> bool:
    """Tell whether all norms are of a size whose square neither overflows nor vanishes."""
    return bool(ordinary(norms))


def ordinary(norms: Array) -> Any:
    """Tell as a 0-d array what :func:`are_ordinary` does, without waiting for the device that it is on."""
    xp = compat.array_namespace(norms)
    largest = math.sqrt(float(xp.finfo(norms.dtype).max))
    return xp.all((norms < largest) & (norms > 1e3 / largest))


def _is_traced(x: Array) -> bool:
    """Tell whether PyTorch is recording what is done with ``x``, whose values are then nobody's business."""
    if not compat.is_torch_array(x):
        return False
    import torch

    return bool(torch.compiler.is_compiling() or torch.jit.is_tracing())  # type: ignore[no-untyped-call,attr-defined]
