"""What the uses are given: one score or label per sample, and nothing missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import as_array, to_numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray


def scores_of(scores: Any) -> NDArray[np.float64]:
    """Return scores as NumPy numbers of shape (n,), or say what is wrong with them.

    >>> scores_of([1, 2])
    array([1., 2.])
    """
    values = to_numpy(as_array(scores))
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"scores have shape {values.shape}: expected one per sample, shape (n,) with n > 0")
    if np.isnan(values).any():
        raise ValueError(f"scores[{int(np.isnan(values).argmax())}] is NaN: find what made it, or drop the sample")
    return values


def whole_numbers(values: Any, name: str, count: int) -> NDArray[np.int64]:
    """Return whole numbers (or booleans) as int64 of shape (count,), or say what is wrong with them.

    >>> whole_numbers([True, False], "wrong", 2)
    array([1, 0])
    """
    numbers = to_numpy(as_array(values))
    if numbers.shape != (count,):
        raise ValueError(f"{name} has shape {numbers.shape}: expected one per sample, shape ({count},)")
    whole = numbers == np.floor(numbers)  # false for NaN
    if not whole.all():
        raise ValueError(f"{name}[{int(whole.argmin())}] is {numbers[whole.argmin()]}: expected whole numbers")
    return numbers.astype(np.int64)
