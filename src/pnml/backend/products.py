"""XᵀX at the speed of the machine, and the lengths of the rows on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import array_api_compat as compat
import numpy as np

from pnml.backend.rows import as_numpy_view, chunk_length, chunks, on_host, plain_norms, wide_dtype
from pnml.backend.threads import spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from pnml.backend.arrays import Array

_STRIPS = 16  # at most, and so the threads that are of use
_FEW_FEATURES = 256  # are not worth cutting into blocks
_BLOCKS = 4  # of columns, of which those below the diagonal are left out
_ALIGNED = 32  # columns a block begins at a multiple of: products of odd ones take ten times as long


def sum_of_products(rows: Array, *, unit_norm: bool) -> tuple[Array, Array]:
    """Give XᵀX (M, M) of rows (n, M) in float64, each row scaled to norm 1 if asked, and the norms (n,) as they came.

    No value is looked at, so no device is waited for: the norms tell afterwards whether the sum is worth anything.
    """
    if not on_host(rows) and compat.is_torch_array(rows):
        return _by_block(rows, unit_norm=unit_norm)
    parts = _by_strip(rows, unit_norm=unit_norm) if on_host(rows) else _in_place(rows, unit_norm=unit_norm)
    total, lengths = None, []
    for product, norms in parts:
        total = product if total is None else total + product
        lengths.append(norms)
    return total, compat.array_namespace(lengths[0]).concat(lengths)


def _in_place(rows: Array, *, unit_norm: bool) -> Iterator[tuple[Array, Array]]:
    """Yield the products and norms of the rows chunk by chunk, where the rows are."""
    xp, wide = compat.array_namespace(rows), wide_dtype(rows)
    for chunk in chunks(rows):
        norms = plain_norms(chunk, wide)
        x = chunk * (1 / norms)[:, None] if unit_norm else xp.astype(chunk, wide)
        yield x.T @ x, norms


def _by_block(rows: Tensor, *, unit_norm: bool) -> tuple[Tensor, Tensor]:
    """Give the products and norms of PyTorch's rows, where they are.

    Chunks of them are scaled into a buffer, and only blocks on and above the diagonal are multiplied, into the sum.
    """
    import torch

    n, width = rows.shape
    length = min(n, chunk_length(rows, rows.dtype))
    step = width if width < _FEW_FEATURES else -(-width // (_BLOCKS * _ALIGNED)) * _ALIGNED
    total = rows.new_zeros((width, width), dtype=torch.float64)
    lengths = rows.new_empty(n, dtype=torch.float64)
    buffer = rows.new_empty((length, width), dtype=torch.float64)
    for chunk, norms in zip(torch.split(rows, length), torch.split(lengths, length), strict=True):
        x = buffer[: len(chunk)]
        _scale(chunk, x, norms, unit_norm=unit_norm)
        for start in range(0, width, step):
            block = slice(start, start + step)
            total[block, start:].addmm_(x[:, block].T, x[:, start:])
    upper = total.triu()
    return upper + upper.triu(1).T, lengths


def _scale(rows: Tensor, out: Tensor, norms: Tensor, *, unit_norm: bool) -> None:
    """Write rows (n, M), scaled if asked, and their norms (n,) to where they belong."""
    import torch

    norms.copy_(plain_norms(rows, norms.dtype))
    if unit_norm:
        torch.mul(rows, (1 / norms)[:, None], out=out)
    else:
        out.copy_(rows)


def _by_strip(rows: Array, *, unit_norm: bool) -> Iterator[tuple[Array, Array]]:
    """Yield the products and norms of long strips of rows as NumPy arrays, which know that XᵀX is symmetric.

    There are 1, 2, 4, 8 or 16 strips, as many as there are rows for and not as there are threads, on which the sum
    would otherwise depend. In a strip, rows are converted and scaled piece by piece, in cache, into a buffer that is
    large enough for the product.
    """
    rows = as_numpy_view(rows)
    n, width = rows.shape
    step = max(1, chunk_length(rows, np.float64) // 4)
    count = 1
    while count < _STRIPS and n >= 2 * count * max(8 * step, 1024):
        count *= 2
    length = -(-n // count)
    size = -(-length // -(-length // max(20 * step, 2 * width)))  # all products of one size, which is worth the M² sums
    spare: list[Array] = []

    def work(start: int) -> tuple[Array, Array]:
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

    return spread(work, range(0, n, length), rows)
