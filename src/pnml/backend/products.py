"""Sums over rows in float64 at the speed of the machine: XᵀX with the norms on the way, and the rows of each class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import namespace
from pnml.backend.rows import chunk_length, plain_norms
from pnml.backend.threads import spread

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pnml.backend.arrays import Array

_STRIPS = 16  # at most; more threads than that are of no use
_FEW_FEATURES = 256  # so few are not worth cutting into blocks
_BLOCKS = 4  # of columns; products below the diagonal are left out
_ALIGNED = 32  # a block begins at a multiple of so many columns: at odd offsets a product takes ten times as long


def sum_of_products(rows: Array, *, unit_norm: bool) -> tuple[Array, Array]:
    """Return XᵀX (M, M) of rows (n, M) in float64, each row scaled to norm 1 if asked, and the original norms (n,).

    Rows are NumPy's, or lie on a GPU. No value is looked at, so no device is waited for: the norms tell afterwards
    whether the sum can be used.
    """
    in_strips = compat.is_numpy_array(rows)
    return (_sum_in_strips if in_strips else _sum_on_device)(rows, unit_norm=unit_norm)


def _sum_on_device(rows: Array, *, unit_norm: bool) -> tuple[Array, Array]:
    """Sum chunk by chunk where the rows are, multiplying only blocks on and above the diagonal."""
    xp, device = namespace(rows), compat.device(rows)
    n, width = rows.shape
    length = min(n, chunk_length(rows, 8))
    step = width if width < _FEW_FEATURES else -(-width // (_BLOCKS * _ALIGNED)) * _ALIGNED
    total = xp.zeros((width, width), dtype=xp.float64, device=device)
    norms = []
    for first in range(0, n, length):
        x = xp.astype(rows[first : first + length, :], xp.float64)
        norms.append(plain_norms(x, xp.float64))
        if unit_norm:
            x = x / norms[-1][:, None]
        for start in range(0, width, step):
            total[start : start + step, start:] += x[:, start : start + step].T @ x[:, start:]
    return xp.triu(total) + xp.triu(total, k=1).T, xp.concat(norms)


def _sum_in_strips(rows: Array, *, unit_norm: bool) -> tuple[Array, Array]:
    """Sum long strips of rows on all cores with NumPy, whose product knows that XᵀX is symmetric.

    There are 1, 2, 4, 8 or 16 strips, depending on the number of rows alone: the sum must not depend on the number of
    threads. In a strip, rows are converted and scaled piece by piece, in cache, into a buffer that is large enough for
    an efficient product.
    """
    n, width = rows.shape
    step = max(1, chunk_length(rows, 8) // 4)
    count = 1
    while count < _STRIPS and n >= 2 * count * max(8 * step, 1024):
        count *= 2
    length = -(-n // count)
    size = -(-length // -(-length // max(20 * step, 2 * width)))  # products of equal size, worth the M² additions
    spare: list[Array] = []

    def sum_strip(start: int) -> tuple[Array, Array]:
        strip = rows[start : start + length]
        buffer = spare.pop() if spare else np.empty((size, width))
        total, norms = None, []
        with np.errstate(all="ignore"):
            for begin in range(0, len(strip), size):
                part = strip[begin : begin + size]
                for first in range(0, len(part), step):
                    x = buffer[first : min(first + step, len(part))]
                    x[...] = part[first : first + step]
                    norms.append(plain_norms(x, x.dtype))
                    if unit_norm:
                        x *= (1 / norms[-1])[:, None]
                x = buffer[: len(part)]
                total = x.T @ x if total is None else total + x.T @ x
        spare.append(buffer)
        return total, np.concatenate(norms)

    totals, norms = zip(*spread(sum_strip, range(0, n, length)), strict=True)
    total = totals[0]
    for product in totals[1:]:
        total = total + product
    return total, np.concatenate(norms)


def sum_by_class(
    rows: Array,
    widths: Sequence[int],
    norms: Sequence[Array] | None,
    classes: np.ndarray[Any, Any],
    n_classes: int,
) -> Array:
    """Return the sum of the rows (n, M) of each class in float64, (C, M), each layer of a row divided by its norm.

    Args:
        rows: NumPy's, or on a GPU.
        widths: of the layers of a row.
        norms: what to divide each layer by, one array (n,) for each; None to leave rows as they are.
        classes: the class of every row, (n,).
        n_classes: the number C of classes.
    """
    xp, device = namespace(rows), compat.device(rows)
    labels = xp.asarray(classes, device=device)[:, None]
    numbers = xp.arange(n_classes, dtype=labels.dtype, device=device)[None]
    totals = [xp.zeros((n_classes, width), dtype=xp.float64, device=device) for width in widths]
    length = min(rows.shape[0], max(1024, chunk_length(rows, 8)))
    for first in range(0, rows.shape[0], length):
        part = slice(first, first + length)
        member = xp.astype(labels[part] == numbers, xp.float64)
        end = 0
        for number, width in enumerate(widths):
            start, end = end, end + width
            share = member if norms is None else member / xp.astype(norms[number][part], xp.float64)[:, None]
            totals[number] += share.T @ xp.astype(rows[part, start:end], xp.float64)
    return xp.concat(totals, axis=1)
