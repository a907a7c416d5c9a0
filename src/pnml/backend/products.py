"""Sums over rows: XᵀX, and the rows of each class, added up in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import namespace

if TYPE_CHECKING:
    from typing import Any

    from pnml.backend.arrays import Array

WEAKEST = 1e-4
"""An eigenvalue of XᵀX may be this share of its trace for products in float32 to tell it from rounding, to 0.1 %."""


def product(rows: Array, *, single: bool) -> Array:
    """Return XᵀX of rows (n, M) in float64, of products in float32 if ``single``."""
    xp = namespace(rows)
    x = xp.astype(rows, xp.float32 if single else xp.float64, copy=False)
    return xp.astype(x.T @ x, xp.float64, copy=False)


def allows_single(square: np.ndarray[Any, Any]) -> bool:
    """Return whether no eigenvalue of XᵀX (M, M) is so weak that products in float32 would drown it.

    >>> allows_single(np.eye(3)), allows_single(np.diag([1.0, 1.0, 1e-6]))
    (True, False)
    """
    try:
        np.linalg.cholesky(square - WEAKEST * np.trace(square) * np.eye(len(square)))
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
