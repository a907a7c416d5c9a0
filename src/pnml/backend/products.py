"""Sums over rows: XᵀX, and the rows of each class, added up in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import namespace

if TYPE_CHECKING:
    from typing import Any

    from pnml.backend.arrays import Array

WEAKEST = 2e-7
"""The share that an eigenvalue has to have in the trace, about the mean, for products in float32 to tell it from
rounding: these are off by some 1e-9 of the trace."""


def product(rows: Array, *, single: bool) -> Array:
    """Return XᵀX of rows (n, M) in float64, of products in float32 about their mean if ``single``."""
    xp = namespace(rows)
    if not single:
        x = xp.astype(rows, xp.float64, copy=False)
        return x.T @ x
    count = rows.shape[0]
    rounded = xp.astype(sum_of_rows(rows) / count, rows.dtype)
    mean = xp.astype(rounded, xp.float64)
    x = rows - rounded
    rest = sum_of_rows(x)
    beside = xp.stack([mean, rest], axis=1) @ xp.stack([count * mean + rest, mean])
    return xp.astype(x.T @ x, xp.float64) + beside


def allows_single(rows: np.ndarray[Any, Any]) -> bool:
    """Return whether no eigenvalue of the scatter of rows (n, M) is so weak that products in float32 would drown it.

    >>> rows = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    >>> allows_single(rows), allows_single(rows * np.float32([1, 1, 1e-4])), allows_single(rows.astype(np.float64))
    (True, False, False)
    """
    if rows.dtype != np.float32:
        return False
    scatter = product(rows - rows.mean(axis=0), single=False)
    try:
        np.linalg.cholesky(scatter - WEAKEST * np.trace(scatter) * np.eye(len(scatter)))
    except np.linalg.LinAlgError:
        return False
    return True


def sum_of_rows(rows: Array) -> Array:
    """Return Σx of rows (n, M) in float64, of products in the dtype of the rows."""
    xp = namespace(rows)
    ones = xp.ones(rows.shape[0], dtype=rows.dtype, device=compat.device(rows))
    return xp.astype(ones @ rows, xp.float64, copy=False)


def sum_by_class(rows: Array, classes: np.ndarray[Any, Any], n_classes: int) -> Array:
    """Return the sums of the rows (n, M) of each class in float64, (C, M), of products in the dtype of the rows."""
    xp = namespace(rows)
    labels = xp.asarray(classes, device=compat.device(rows))
    numbers = xp.arange(n_classes, dtype=labels.dtype, device=compat.device(rows))
    member = xp.astype(labels[None] == numbers[:, None], rows.dtype)
    return xp.astype(member @ rows, xp.float64, copy=False)
