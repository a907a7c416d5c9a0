"""Running sums that keep what rounding takes from them."""

from __future__ import annotations

from typing import Any, TypeAlias

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import Array, like, to_numpy
from pnml.backend.threads import spread

_BLOCK = 1 << 16  # numbers: the terms of a block stay in cache

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
    if compat.is_numpy_array(part) and part.ndim == 2 and part.size > _BLOCK:
        return _add_in_blocks(held, lost, part)
    return _added(held, lost, part)


def _added(held: Array, lost: Array | None, part: Array) -> tuple[Array, Array]:
    new = held + part
    taken = new - held
    rounding = (held - (new - taken)) + (part - taken)
    return new, rounding if lost is None else lost + rounding


def _add_in_blocks(held: Array, lost: Array | None, part: Array) -> tuple[Array, Array]:
    """Add a large matrix on all cores, a block of rows at a time: its terms would not stay in cache."""
    new, rounding = np.empty_like(held), np.empty_like(held)
    rows = max(1, _BLOCK // part.shape[1])

    def work(start: int) -> None:
        block = slice(start, start + rows)
        new[block], rounding[block] = _added(held[block], None if lost is None else lost[block], part[block])

    for _ in spread(work, range(0, len(part), rows)):
        pass
    return new, rounding


def total(state: Sum) -> np.ndarray[Any, Any]:
    """Return a sum with what rounding took from it."""
    if state is None:
        raise ValueError("nothing was added yet")
    held, lost = state
    return to_numpy(held if lost is None else held + lost)
