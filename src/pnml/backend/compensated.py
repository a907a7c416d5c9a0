"""Running sums that keep what rounding takes from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import array_api_compat as compat

from pnml.backend.arrays import Array, like, to_numpy

if TYPE_CHECKING:
    import numpy as np

Sum: TypeAlias = "tuple[Array, Array] | None"
"""A running sum and its accumulated rounding error, or None before the first part."""


def add(state: Sum, part: Array) -> tuple[Array, Array]:
    """Add a part by compensated summation; the state moves to the part's library and device.

    >>> import numpy as np
    >>> state = None
    >>> for part in (1e16, 1.0, 1.0, -1e16):
    ...     state = add(state, np.float64(part))
    >>> float(total(state))
    2.0
    """
    if state is None:
        return part, None
    held, lost = state
    if type(held) is not type(part) or compat.device(held) != compat.device(part):
        held, lost = like(part, to_numpy(held)), None if lost is None else like(part, to_numpy(lost))
    new = held + part
    taken = new - held
    rounding = (held - (new - taken)) + (part - taken)
    return new, rounding if lost is None else lost + rounding


def total(state: tuple[Array, Array]) -> np.ndarray[Any, Any]:
    """Return a sum with what rounding took from it."""
    held, lost = state
    return to_numpy(held if lost is None else held + lost)
