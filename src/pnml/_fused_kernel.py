"""The kernel of :mod:`pnml.fused`: a block of embeddings is read, their regrets are written, and nothing in between is.

The tensor cores leave out what TF32 has no digits for, which makes every embedding shorter. So what they are left with
is measured, and scaled to the length that it should have.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from pnml._extras import require
from pnml.quick import LARGEST_ERROR, SMALLEST_REGRET
from pnml.subspace import block_width

if TYPE_CHECKING:
    from torch import Tensor

try:  # the kernel looks it up among the names of this module
    import triton.language as tl
except ImportError:  # pragma: no cover - nor is there a kernel then
    tl = None

_CONFIGS = (  # rows, columns and features of a block, warps, stages
    (128, 128, 32, 8, 4),
    (128, 128, 32, 8, 3),
    (128, 128, 32, 4, 3),
    (128, 128, 64, 8, 2),
    (128, 256, 32, 8, 3),
    (64, 128, 32, 4, 3),
    (64, 128, 32, 4, 4),
    (64, 128, 64, 4, 2),
    (64, 256, 32, 4, 3),
    (64, 64, 32, 4, 4),
)


def regrets(x: Tensor, constants: tuple[Tensor, ...], *, classes: int, unit_norm: bool) -> Tensor:
    """Give the regrets (n,) of float32 embeddings (n, M), NaN where one might be further off than it may.

    Args:
        x: embeddings.
        constants: of :class:`~pnml.fused.Fused`.
        classes: how many of the rows of the weight are no padding.
        unit_norm: whether embeddings are scaled to norm 1.
    """
    import torch

    padded, stride = constants[1].shape
    out = torch.empty(len(x), dtype=torch.float32, device=x.device)
    with torch.cuda.device(x.get_device()):
        _kernel()[lambda meta: (-(-len(x) // meta["ROWS"]),)](
            x.contiguous(),
            *constants,
            out,
            len(x),
            WIDTH=x.shape[1],
            STRIDE=stride,
            CLASSES=classes,
            PADDED=padded,
            UNIT=unit_norm,
            TRIANGULAR=block_width(x.shape[1]) < x.shape[1],
            LIMIT=LARGEST_ERROR,
            SMALLEST=SMALLEST_REGRET,
        )
    return out


@cache
def _kernel() -> Any:
    triton = require("triton", extra="torch", what='precision="tf32"')
    # What interprets kernels on a CPU, to test them, cannot time them.
    chosen = _CONFIGS[6:7] if os.environ.get("TRITON_INTERPRET") == "1" else _CONFIGS
    configs = [
        triton.Config({"ROWS": rows, "BLOCK": block, "STEP": step}, num_warps=warps, num_stages=stages)
        for rows, block, step, warps, stages in chosen
    ]
    kernel = triton.jit(do_not_specialize=["count"])(_regrets)  # or each number of rows would be compiled for
    return triton.autotune(configs, key=["WIDTH", "CLASSES"])(kernel)


# Triton reads the source of this function; none of its lines is ever run by Python. It must be one of a kernel's size,
# and without keyword-only arguments.
def _regrets(  # noqa: PLR0915, PLR0917  # pragma: no cover
    x: tl.tensor,
    whitening: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    reach: tl.tensor,
    out: tl.tensor,
    count: tl.tensor,
    WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    CLASSES: tl.constexpr,
    PADDED: tl.constexpr,
    UNIT: tl.constexpr,
    TRIANGULAR: tl.constexpr,
    LIMIT: tl.constexpr,
    SMALLEST: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """Compute the regrets of a block of rows."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    features = tl.arange(0, STEP)
    x_rows = x + tl.minimum(rows, count - 1).to(tl.int64)[:, None] * WIDTH  # the last row stands in beyond the end

    whole = tl.zeros((ROWS, STEP), tl.float32)
    squared = tl.zeros((ROWS, STEP), tl.float32)
    doubt = tl.zeros((ROWS, STEP), tl.float32)
    logit_doubt = tl.zeros((ROWS, STEP), tl.float32)
    for k in range(0, WIDTH, STEP):
        if WIDTH % STEP == 0:
            entries = tl.load(x_rows + (k + features)[None, :])
        else:
            entries = tl.load(x_rows + (k + features)[None, :], mask=(k + features)[None, :] < WIDTH, other=0.0)
        if not UNIT:
            whole += entries * entries
        entries = (entries.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)  # the digits TF32 has
        reached = entries * tl.load(reach + k + features)[None, :]
        logit_reached = entries * tl.load(reach + STRIDE + k + features)[None, :]
        squared += entries * entries
        doubt += reached * reached
        logit_doubt += logit_reached * logit_reached
    length = tl.sqrt(tl.sum(squared, axis=1))
    scale = 1 / length if UNIT else tl.sqrt(tl.sum(whole, axis=1)) / length

    h = tl.zeros((ROWS,), tl.float32)
    for c in range(0, WIDTH, BLOCK):
        columns = whitening + (c + tl.arange(0, BLOCK))[None, :] * STRIDE
        products = tl.zeros((ROWS, BLOCK), tl.float32)
        for k in range(c if TRIANGULAR else 0, WIDTH, STEP):  # above the diagonal there are zeros only
            if WIDTH % STEP == 0:
                entries = tl.load(x_rows + (k + features)[None, :])
            else:
                entries = tl.load(x_rows + (k + features)[None, :], mask=(k + features)[None, :] < WIDTH, other=0.0)
            factors = tl.load(columns + (k + features)[:, None])
            products = tl.dot(entries, factors, products, input_precision="tf32")
        h += tl.sum(products * products, axis=1)

    classes = tl.arange(0, PADDED)
    columns = weight + classes[None, :] * STRIDE
    logits = tl.zeros((ROWS, PADDED), tl.float32)
    for k in range(0, WIDTH, STEP):
        if WIDTH % STEP == 0:
            entries = tl.load(x_rows + (k + features)[None, :])
        else:
            entries = tl.load(x_rows + (k + features)[None, :], mask=(k + features)[None, :] < WIDTH, other=0.0)
        factors = tl.load(columns + (k + features)[:, None])
        logits = tl.dot(entries, factors, logits, input_precision="tf32")

    logits = logits * scale[:, None] + tl.load(bias + classes)[None, :]
    log_p = logits - tl.max(logits, axis=1)[:, None]
    log_p = log_p - tl.log(tl.sum(tl.exp(log_p), axis=1))[:, None]
    share = tl.sqrt(tl.sum(doubt, axis=1) / h)
    trusted = (length > 1e-15) & (length < 1e15) & (h > 1e-30) & (h < 1e30)  # no square overflowed or vanished
    h = h * scale * scale
    t = h / (1 + h)
    y = t[:, None] * log_p  # of which 1 − exp(y) is wanted, by a series where the difference would cancel
    series = -y * (1 + y / 2 * (1 + y / 3 * (1 + y / 4 * (1 + y / 5 * (1 + y / 6)))))
    ratio = tl.exp((1 - t)[:, None] * log_p)
    v = ratio * tl.where(y > -0.25, series, 1 - tl.exp(y))
    is_class = classes[None, :] < CLASSES
    total = tl.sum(tl.where(is_class, v * (1 - ratio / (1 + v)), 0.0), axis=1)
    z = total / (2 + total)  # log(1 + total), by the series of the inverse hyperbolic tangent where total is small
    z2 = z * z
    small = 2 * z * (1 + z2 * (1 / 3 + z2 * (1 / 5 + z2 * (1 / 7 + z2 * (1 / 9)))))
    gamma = tl.where(total < 0.5, small, tl.log(1 + total))
    steepness = -tl.min(tl.where(is_class, log_p, 0.0), axis=1)
    error = share * (2 + share) * (1 - t) * (1 + t * steepness)
    error += 2 * tl.sqrt(tl.sum(logit_doubt, axis=1)) * scale + 2.0**-22 * steepness
    trusted = trusted & (error <= LIMIT) & (gamma > SMALLEST)
    tl.store(out + rows, tl.where(trusted, gamma, float("nan")), mask=rows < count)
