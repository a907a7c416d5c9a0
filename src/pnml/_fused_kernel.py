"""The kernel of :mod:`pnml.fused` for any NVIDIA GPU: a block of embeddings is read, and their regrets are written.

One program of the GPU does a block of rows. It reads them a few features at a time, scales these, rounds them to
float16 and multiplies them: once with the weight, and again with every block of the whitening's columns, which by then
are in cache. Nothing between embeddings and regrets is written.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml._arrays import Placed
from pnml._extras import require
from pnml.quick import LARGEST_ERROR, SMALLEST_REGRET

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from pnml._factors import Factors

try:  # the kernel looks it up among the names of this module
    import triton.language as tl
except ImportError:  # pragma: no cover - nor is there a kernel then
    tl = None

_CONFIGS = (  # rows, columns and features of a block, warps, stages
    (64, 128, 32, 4, 4),
    (64, 128, 32, 4, 3),
    (128, 128, 32, 8, 4),
)
_PADDING = 128  # no block is wider


class Blocks:
    """A detector's constants with zeros up to the end of the last block."""

    def __init__(self, factors: Factors) -> None:
        self.classes, width = factors.weight.shape
        wide, more = -width % _PADDING, max(16, 1 << (self.classes - 1).bit_length()) - self.classes
        self.half = Placed(
            np.pad(factors.whitening, ((0, wide), (0, wide))), np.pad(factors.weight, ((0, more), (0, wide)))
        )
        self.single = Placed(
            np.pad(factors.features, ((0, 0), (0, wide))),
            np.pad(factors.bias, (0, more), constant_values=-1e30),  # no logit
        )
        self.numbers = factors.of_h, factors.of_logits, *factors.least


def regrets(x: Tensor, blocks: Blocks, *, unit_norm: bool, label_noise: float) -> Tensor:
    """Give the regrets (n,) of float32 embeddings (n, M) without gaps, NaN where one might be further off than it may.

    Args:
        x: embeddings.
        blocks: of the detector.
        unit_norm: whether embeddings are scaled to norm 1.
        label_noise: the share of labels taken to be drawn at random.
    """
    import torch

    whitening, weight = blocks.half.beside(x, torch.float16)
    features, bias = blocks.single.beside(x, torch.float32)
    out = torch.empty(len(x), dtype=torch.float32, device=x.device)
    with torch.cuda.device(x.get_device()):
        _kernel()[lambda meta: (-(-len(x) // meta["ROWS"]),)](
            x,
            features,
            whitening,
            weight,
            bias,
            out,
            len(x),
            *blocks.numbers,
            label_noise,
            WIDTH=x.shape[1],
            STRIDE=weight.shape[1],
            CLASSES=blocks.classes,
            PADDED=weight.shape[0],
            UNIT=unit_norm,
            NOISY=label_noise > 0,
            LIMIT=LARGEST_ERROR,
            SMALLEST=SMALLEST_REGRET,
        )
    return out


@cache
def _kernel() -> Any:
    triton = require("triton", extra="torch", what='precision="float16"')
    # What interprets kernels on a CPU, to test them, cannot time them.
    chosen = _CONFIGS[:1] if os.environ.get("TRITON_INTERPRET") == "1" else _CONFIGS
    configs = [
        triton.Config({"ROWS": rows, "BLOCK": block, "STEP": step}, num_warps=warps, num_stages=stages)
        for rows, block, step, warps, stages in chosen
    ]
    kernel = triton.jit(do_not_specialize=["count"])(_regrets)  # or each number of rows would be compiled for
    return triton.autotune(configs, key=["WIDTH", "CLASSES"])(kernel)


def _part(function: Callable[..., Any]) -> Any:
    """Let Triton compile a function that the kernel calls."""
    return require("triton", extra="torch", what='precision="float16"').jit(function) if tl else function


# Triton reads the source of what follows; none of its lines is ever run by Python. It knows no keyword-only arguments.
@_part
def _entries(
    x_rows: tl.tensor, columns: tl.tensor, WIDTH: tl.constexpr, STEP: tl.constexpr
) -> tl.tensor:  # pragma: no cover
    """Read some columns of rows, zeros beyond the last."""
    if WIDTH % STEP == 0:
        return tl.load(x_rows + columns[None, :])
    else:  # noqa: RET505 - the other is not even compiled
        return tl.load(x_rows + columns[None, :], mask=columns[None, :] < WIDTH, other=0.0)


@_part
def _power_of_two(values: tl.tensor) -> tl.tensor:  # pragma: no cover
    """Give the power of two that takes a value to 1 or more, below 2; but 1 for one that is 0 or out of range."""
    bits = values.to(tl.int32, bitcast=True) & 0x7F800000  # its exponent
    return tl.where((values > 1e-30) & (values < 1e30), (0x7F000000 - bits).to(tl.float32, bitcast=True), 1.0)


@_part
def _log_of_one_and(total: tl.tensor) -> tl.tensor:  # pragma: no cover
    """Give log(1 + total), by the series of the inverse hyperbolic tangent where total is small."""
    z = total / (2 + total)
    z2 = z * z
    small = 2 * z * (1 + z2 * (1 / 3 + z2 * (1 / 5 + z2 * (1 / 7 + z2 * (1 / 9)))))
    return tl.where(total < 0.5, small, tl.log(1 + total))


def _regrets(  # noqa: PLR0917  # pragma: no cover
    x: tl.tensor,
    features: tl.tensor,
    whitening: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    count: tl.tensor,
    of_h: tl.tensor,
    of_logits: tl.tensor,
    least: tl.tensor,
    least_logit: tl.tensor,
    noise: tl.tensor,
    WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    CLASSES: tl.constexpr,
    PADDED: tl.constexpr,
    UNIT: tl.constexpr,
    NOISY: tl.constexpr,
    LIMIT: tl.constexpr,
    SMALLEST: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """Compute the regrets of a block of rows."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x_rows = x + tl.minimum(rows, count - 1).to(tl.int64)[:, None] * WIDTH  # the last row stands in beyond the end
    steps = tl.arange(0, STEP)
    first = _entries(x_rows, steps, WIDTH, STEP) * tl.load(features + steps)[None, :]
    of_row = _power_of_two(tl.max(tl.abs(first), axis=1))

    classes = tl.arange(0, PADDED)
    logits = tl.zeros((ROWS, PADDED), tl.float32)
    squared = tl.zeros((ROWS, STEP), tl.float32)
    doubt = tl.zeros((ROWS, STEP), tl.float32)
    logit_doubt = tl.zeros((ROWS, STEP), tl.float32)
    for k in range(0, WIDTH, STEP):
        entries = _entries(x_rows, k + steps, WIDTH, STEP)
        squared += entries * entries
        entries = entries * tl.load(features + k + steps)[None, :] * of_row[:, None]
        doubt += entries * entries * tl.load(features + STRIDE + k + steps)[None, :]
        logit_doubt += entries * entries * tl.load(features + 2 * STRIDE + k + steps)[None, :]
        of_classes = tl.load(weight + classes[None, :] * STRIDE + (k + steps)[:, None])
        logits = tl.dot(entries.to(tl.float16), of_classes, logits)

    h = tl.zeros((ROWS,), tl.float32)
    for c in range(0, WIDTH, BLOCK):
        columns = whitening + (c + tl.arange(0, BLOCK))[None, :] * STRIDE
        products = tl.zeros((ROWS, BLOCK), tl.float32)
        for k in range(c, WIDTH, STEP):  # above the diagonal there are zeros only
            entries = _entries(x_rows, k + steps, WIDTH, STEP)
            entries = entries * tl.load(features + k + steps)[None, :] * of_row[:, None]
            products = tl.dot(entries.to(tl.float16), tl.load(columns + (k + steps)[:, None]), products)
        h += tl.sum(products * products, axis=1)

    length = tl.sqrt(tl.sum(squared, axis=1))
    scale = 1 / (of_row * length) if UNIT else 1 / of_row
    share = tl.sqrt((tl.sum(doubt, axis=1) + least) / h)
    trusted = (length > 1e-15) & (length < 1e15) & (h > 1e-30) & (h < 1e30)  # no square overflowed or vanished
    h = h * of_h * scale * scale
    t = h / (1 + h)

    logits = logits * (scale * of_logits)[:, None] + tl.load(bias + classes)[None, :]
    logits = logits - tl.max(logits, axis=1)[:, None]
    p = tl.exp(logits)
    whole = tl.sum(p, axis=1)
    p = p / whole[:, None]
    log_p = logits - tl.log(whole)[:, None]
    if NOISY:
        p = (1 - noise) * p + noise / CLASSES
        log_p = tl.log(p)
    y = t[:, None] * log_p
    ratio = tl.exp((1 - t)[:, None] * log_p)
    # ratio (1 − exp(y)), by a series where the difference would cancel
    v = tl.where(y > -0.015625, -ratio * y * (1 + y * (0.5 + y / 6)), ratio - p)
    is_class = classes[None, :] < CLASSES
    gamma = _log_of_one_and(tl.sum(tl.where(is_class, v * (1 - p) / (1 + v), 0.0), axis=1))
    steepness = -tl.min(tl.where(is_class, log_p, 0.0), axis=1)
    error = share * (2 + share) * (1 - t) * (1 + t * steepness)
    error += 2 * tl.sqrt(tl.sum(logit_doubt, axis=1) + least_logit) * scale + 2.0**-22 * steepness
    trusted = trusted & (error <= LIMIT) & (gamma > SMALLEST)
    tl.store(out + rows, tl.where(trusted, gamma, float("nan")), mask=rows < count)
