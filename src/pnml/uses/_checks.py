"""Checks of labels, shared by the modules of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import as_array, to_numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray


def as_integers(values: Any, name: str, count: int) -> NDArray[np.int64]:
    """Return integers or booleans as int64; raise a ``ValueError`` unless they are integral and of shape (count,).

    >>> as_integers([True, False], "wrong", 2)
    array([1, 0])
    """
    numbers = to_numpy(as_array(values))
    if numbers.shape != (count,):
        raise ValueError(f"{name} has shape {numbers.shape}: expected one per sample, shape ({count},)")
    integral = numbers == np.floor(numbers)  # false for NaN
    if not integral.all():
        raise ValueError(f"{name}[{int(integral.argmin())}] is {numbers[integral.argmin()]}: expected integers")
    return numbers.astype(np.int64)
