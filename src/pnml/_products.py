"""XᵀX at the speed of the machine, and the lengths of the rows on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import array_api_compat as compat
import numpy as np

from pnml._rows import chunk_length, chunks, on_host, plain_norms, wide_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pnml._arrays import Array


def sum_of_products(rows: Array, *, unit_norm: bool) -> tuple[Array, Array]:
    """Give XᵀX (M, M) of rows (n, M) in float64, each row scaled to norm 1 if asked, and the norms (n,) as they came.

    No value is looked at, so no device is waited for: the norms tell afterwards whether the sum is worth anything.
    """
    parts = _through_buffer(rows, unit_norm=unit_norm) if on_host(rows) else _in_place(rows, unit_norm=unit_norm)
    total, lengths = None, []
    for x, norms in parts:
        product = x.T @ x
        total = product if total is None else total + product
        lengths.append(norms)
    return total, compat.array_namespace(lengths[0]).concat(lengths)


def _in_place(rows: Array, *, unit_norm: bool) -> Iterator[tuple[Array, Array]]:
    """Yield float64 rows and their norms chunk by chunk, where the rows are."""
    xp, wide = compat.array_namespace(rows), wide_dtype(rows)
    for x in chunks(rows):
        norms = plain_norms(x, wide)
        yield x * (1 / norms)[:, None] if unit_norm else xp.astype(x, wide), norms


def _through_buffer(rows: Array, *, unit_norm: bool) -> Iterator[tuple[Array, Array]]:
    """Yield float64 rows and their norms as NumPy arrays, which multiply with their own transpose in half the time.

    The rows are converted and scaled piece by piece, in cache, into one buffer that is large enough for the product.
    """
    rows = _as_numpy(rows)
    n, width = rows.shape
    step = max(1, chunk_length(rows, np.float64) // 4)
    size = -(-n // -(-n // max(20 * step, 2048)))  # all products of one size, which is worth the M² sums
    buffer = np.empty((size, width))
    for start in range(0, n, size):
        stop, norms = min(n, start + size), []
        for first in range(start, stop, step):
            x = buffer[first - start : min(first + step, stop) - start]
            x[...] = rows[first : first + len(x)]
            norms.append(plain_norms(x, x.dtype))
            if unit_norm:
                x *= (1 / norms[-1])[:, None]
        yield buffer[: stop - start], np.concatenate(norms)


def _as_numpy(rows: Array) -> Array:
    """See the memory of a tensor as NumPy does: two libraries with threads of their own get into each other's way."""
    if not compat.is_torch_array(rows):
        return rows
    return (rows if str(rows.dtype) != "torch.bfloat16" else rows.float()).numpy()  # of which NumPy knows nothing
