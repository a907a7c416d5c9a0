"""Rows on an NVIDIA GPU, read once: measured and scaled by one kernel, hashed by another.

As separate operations of PyTorch, either takes several times as long, nearly all of it for memory and for the host.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from pnml._extras import require

if TYPE_CHECKING:
    import torch

try:  # the kernels look it up among the names of this module
    import triton.language as tl
except ImportError:  # pragma: no cover - nor are there kernels then
    tl = None

_ENTRIES = 2048  # of a block


def scale_rows(rows: torch.Tensor, out: torch.Tensor, norms: torch.Tensor, *, unit_norm: bool) -> None:
    """Write rows (n, M), each scaled to norm 1 if asked, and the norms (n,) as they came, both in float64.

    Args:
        rows: of any floating-point dtype and strides.
        out: where the rows go, without gaps.
        norms: where the norms go.
        unit_norm: whether to scale.
    """
    width = rows.shape[1]
    _launch("_scale", rows, out, norms, WIDTH=width, UNIT=unit_norm, STEP=_step(width))


def hash_rows(rows: torch.Tensor, odd: torch.Tensor, *, columns: int, mix: tuple[int, int]) -> torch.Tensor:
    """Give the keys (n,) of :mod:`pnml.sample` of rows (n, M).

    Args:
        rows: of any floating-point dtype and strides.
        odd: shape (M,), a factor of each column's bits.
        columns: how many columns to read, evenly spaced, unless most of those are zero.
        mix: factors that spread the bits of a key.
    """
    import torch

    width = rows.shape[1]
    keys = torch.empty(len(rows), dtype=torch.int64, device=rows.device)
    _launch(
        "_hash",
        rows,
        keys,
        odd,
        WIDTH=width,
        COLUMNS=columns,
        APART=max(1, width // columns),
        LEAST=columns // 4,
        FIRST=mix[0],
        SECOND=mix[1],
        STEP=_step(columns),
    )
    return keys


def _step(width: int) -> int:
    return min(_ENTRIES, 1 << (width - 1).bit_length())


def _launch(name: str, rows: torch.Tensor, *others: torch.Tensor, STEP: int, **constants: Any) -> None:
    """Run a kernel over blocks of rows, ``STEP`` columns at a time."""
    import torch

    block = _ENTRIES // STEP
    with torch.cuda.device(rows.get_device()):
        _kernels()[name][-(-len(rows) // block),](
            rows, *others, len(rows), *rows.stride(), ROWS=block, STEP=STEP, **constants
        )


@cache
def _kernels() -> dict[str, Any]:
    triton = require("triton", extra="torch", what="pnml on a GPU")
    jit = triton.jit(do_not_specialize=["count"])  # or each number of rows would be compiled for
    return {kernel.__name__: jit(kernel) for kernel in (_scale, _hash)}


# Triton reads the source of these functions; none of their lines is ever run by Python.
def _scale(  # noqa: PLR0917  # pragma: no cover
    x: tl.tensor,
    out: tl.tensor,
    norms: tl.tensor,
    count: tl.tensor,
    apart: tl.tensor,
    beside: tl.tensor,
    WIDTH: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """Measure and scale a block of rows, which are still in cache when they are read again."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = (rows < count)[:, None]
    squares = tl.zeros((ROWS, STEP), tl.float64)
    for k in range(0, WIDTH, STEP):
        columns = (k + tl.arange(0, STEP))[None, :]
        mask = inside & (columns < WIDTH)
        entries = tl.load(x + rows[:, None] * apart + columns * beside, mask=mask, other=0.0).to(tl.float64)
        squares += entries * entries
    lengths = tl.sqrt(tl.sum(squares, axis=1))
    scale = (1 / lengths)[:, None]
    for k in range(0, WIDTH, STEP):
        columns = (k + tl.arange(0, STEP))[None, :]
        mask = inside & (columns < WIDTH)
        entries = tl.load(x + rows[:, None] * apart + columns * beside, mask=mask, other=0.0).to(tl.float64)
        if UNIT:
            entries *= scale
        tl.store(out + rows[:, None] * WIDTH + columns, entries, mask=mask)
    tl.store(norms + rows, lengths, mask=rows < count)


def _hash(  # noqa: PLR0917  # pragma: no cover
    x: tl.tensor,
    keys: tl.tensor,
    odd: tl.tensor,
    count: tl.tensor,
    apart: tl.tensor,
    beside: tl.tensor,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    APART: tl.constexpr,
    LEAST: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """Hash a block of rows, as the functions of :mod:`pnml.sample` do."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = (rows < count)[:, None]
    few = tl.arange(0, STEP)[None, :]
    mask = (few < COLUMNS) & (few * APART < WIDTH)
    entries = tl.load(x + rows[:, None] * apart + few * APART * beside, mask=inside & mask, other=0.0).to(tl.float64)
    key = tl.sum(entries.to(tl.int64, bitcast=True) * tl.load(odd + few, mask=mask, other=0), axis=1)
    if WIDTH > COLUMNS:
        sparse = (tl.sum((entries != 0).to(tl.int32), axis=1) < LEAST) & (rows < count)
        if tl.max(sparse.to(tl.int32), axis=0) > 0:
            sums = tl.zeros((ROWS, STEP), tl.int64)
            for k in range(0, WIDTH, STEP):
                columns = k + few
                mask = columns < WIDTH
                entries = tl.load(x + rows[:, None] * apart + columns * beside, mask=inside & mask, other=0.0).to(
                    tl.float64
                )
                sums += entries.to(tl.int64, bitcast=True) * tl.load(odd + columns, mask=mask, other=0)
            key = tl.where(sparse, tl.sum(sums, axis=1), key)
    key += FIRST
    key = (key ^ (key >> 31)) * FIRST
    key = (key ^ (key >> 27)) * SECOND
    tl.store(keys + rows, key ^ (key >> 33), mask=rows < count)
