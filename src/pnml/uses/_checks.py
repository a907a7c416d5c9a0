"""Checks of labels and probabilities, shared by the modules of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import as_array, to_numpy
from pnml.backend.rows import check_rows
from pnml.core.theorem import SUM_TOLERANCE

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


def as_probabilities(values: Any) -> NDArray[np.float64]:
    """Return probabilities as float64 of shape (n, C); raise a ``ValueError`` unless every row is a distribution.

    >>> as_probabilities([[0.25, 0.75]])
    array([[0.25, 0.75]])
    """
    p = to_numpy(check_rows(as_array(values), None))
    sums = p.sum(axis=1)
    good = (p >= 0).all(axis=1) & (np.abs(sums - 1) <= SUM_TOLERANCE)
    if not good.all():
        row = int(good.argmin())
        raise ValueError(
            f"row {row} has the sum {sums[row]} and the smallest entry {p[row].min()}: expected non-negative "
            "probabilities with a sum of 1; apply softmax to logits first"
        )
    return p
