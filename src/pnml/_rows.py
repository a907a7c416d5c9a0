"""Batches of rows: checked, scaled, and cut into chunks that bound the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import array_api_compat as compat
import numpy as np

from pnml._arrays import Array, as_array, has_float64, is_real_floating, to_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK_BYTES = 1 << 26
_LARGEST_NORM = 1e152  # beyond it, squares leave float64


def check_rows(rows: Array, n_features: int | None) -> Array:
    """Return ``rows`` as a finite floating-point array of shape (n, n_features), or say what is wrong with them."""
    rows = as_array(rows)
    xp = compat.array_namespace(rows)
    if rows.ndim != 2:
        raise ValueError(f"expected a 2-D batch of shape (rows, features), got shape {tuple(rows.shape)}")
    if n_features is not None and rows.shape[1] != n_features:
        raise ValueError(f"expected rows of {n_features} features, got {rows.shape[1]}")
    if not xp.isdtype(rows.dtype, ("real floating", "integral", "bool")):
        raise ValueError(f"expected rows of real numbers, got {rows.dtype}")
    if not is_real_floating(rows):
        return xp.astype(rows, xp.float64 if has_float64(rows) else xp.float32)
    finite = xp.isfinite(rows)
    if not bool(xp.all(finite)):
        row, column = (int(i) for i in np.argwhere(~to_numpy(finite, bool))[0])
        raise ValueError(f"row {row} holds {float(rows[row, column])} in column {column}: every value must be finite")
    return rows


def chunks(rows: Array) -> Iterator[tuple[int, Array]]:
    """Yield pieces of bounded memory: the index of the first row, and rows as float64 (float32 if there is no more)."""
    xp = compat.array_namespace(rows)
    wide = xp.float64 if has_float64(rows) else xp.float32
    step = max(1, _CHUNK_BYTES // (8 * max(1, rows.shape[1])))
    for start in range(0, rows.shape[0], step):
        yield start, xp.astype(rows[start : min(start + step, rows.shape[0]), :], wide)


def row_norms(x: Array) -> Array:
    """Euclidean norm of every row, of any magnitude."""
    xp = compat.array_namespace(x)
    largest = xp.max(xp.abs(x), axis=-1, keepdims=True)
    scale = xp.where(largest > 0, largest, xp.ones_like(largest))
    return scale[:, 0] * xp.sqrt(xp.sum((x / scale) ** 2, axis=-1))


def unit_rows(x: Array, norms: Array, *, first: int = 0) -> Array:
    """Scale every row to norm 1; a row without length is named by its index, counted from ``first``."""
    zero = to_numpy(norms == 0, bool)
    if zero.any():
        row = first + int(zero.argmax())
        raise ValueError(f"row {row} has norm 0.0 and cannot be scaled to norm 1: leave such rows out")
    return x / norms[:, None]


def check_squares(norms: Array, *, first: int = 0) -> None:
    """Refuse rows whose squares do not fit into float64, by their index counted from ``first``."""
    large = to_numpy(norms) > _LARGEST_NORM
    if large.any():
        row = int(large.argmax())
        raise ValueError(f"row {first + row} has norm {float(norms[row])}, whose square overflows: scale the rows down")
