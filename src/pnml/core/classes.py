"""Classes that come with rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import as_array, to_numpy

if TYPE_CHECKING:
    from pnml.backend.arrays import Array


def check_classes(classes: Array | None, count: int, n_classes: int) -> np.ndarray[Any, Any]:
    """Return the classes of rows as integers (count,); raise ``ValueError`` unless each is one of ``n_classes``.

    >>> check_classes([2.0, 0.0], 2, 3)
    array([2, 0])
    """
    if classes is None:
        raise ValueError("this Correlation sums the rows of every class: pass their classes, update(rows, classes)")
    given = to_numpy(as_array(classes), None)
    if given.shape != (count,):
        raise ValueError(f"expected one class for each of {count} rows, got shape {given.shape}")
    given = np.asarray(given.tolist()) if given.dtype.kind == "O" else given
    if given.dtype.kind not in "biuf":
        some = ", ".join(map(repr, given[:3].tolist()))
        raise ValueError(f"expected classes from 0 to {n_classes - 1}, numbers of rows of weight, got {some}")
    with np.errstate(invalid="ignore"):
        found = given.astype(np.int64)
    if (found != given).any():
        raise ValueError(f"expected whole numbers as classes, got {given[found != given][0]}")
    if count and not 0 <= found.min() <= found.max() < n_classes:
        raise ValueError(f"expected classes from 0 to {n_classes - 1}, got {found.min()} to {found.max()}")
    return found
