"""The kernel of :mod:`pnml.fused` for Hopper, as of the H100 and H200, whose tensor cores work while others fetch.

One program runs on each multiprocessor to the end, and takes blocks of 128 rows in turns with the others. Its warps
have roles, and what one needs of another goes through rings in shared memory::

    embeddings ──▶ warp 8 ──▶ ring of float32 ──┐
                                                ├──▶ warps 0 to 7 ──▶ regrets
    weights ─────▶ warp 9 ──▶ ring of float16 ──┘

A ring is a few places, each with two barriers. Who fills a place waits until it is empty, and the hardware that copies
for it says when it is full. Who reads a place waits until it is full, and says when it may be filled again.

The eight warps round the rows to float16 and keep them in registers, 128 registers of each thread for 512 features. The
whitening has nothing above its diagonal: its last 64 columns need the last 64 features only, the 64 columns before them
the last 128, and so on. So features come from last to first, are multiplied as soon as they are there, and the next are
rounded while the tensor cores multiply. Weights come in tiles of 64 by 64, in the order of their use, from the cache
that all programs share. Everything is unrolled into one long piece of code, since registers cannot be counted through;
a second piece beside it, for more warps, would no longer fit the cache of instructions.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml._arrays import Placed
from pnml._hopper_parts import (
    by_thread,
    fill,
    filled,
    finish,
    gl,
    gluon,
    grown,
    hopper,
    multiply,
    part,
    power_of_two,
    release,
    ring,
    rounded,
    tma,
)
from pnml.quick import LARGEST_ERROR, SMALLEST_REGRET

if TYPE_CHECKING:
    from torch import Tensor

    from pnml._factors import Factors


MOST_FEATURES, MOST_CLASSES = 512, 128
"""How many there are registers for."""

_ROW_PLACES, _WEIGHT_PLACES = 4, 16  # of 16 and 8 KiB each


class Tiles:
    """A detector's constants with the weights in tiles of 64 by 64: (u, 64, 64), in the order of their use."""

    def __init__(self, factors: Factors) -> None:
        self.classes, width = factors.weight.shape
        self.across, self.parts = -(-width // 64), -(-self.classes // 64)
        wide, more = -width % 64, -self.classes % 64
        whitening = np.pad(factors.whitening, ((0, wide), (0, wide)))
        weight = np.pad(factors.weight, ((0, more), (0, wide)))
        falling = range(self.across - 1, -1, -1)
        places = [(whitening, i, k) for i in falling for k in falling if k >= i]
        places += [(weight, i, k) for k in falling for i in range(self.parts)]
        tiles = [rows[64 * i : 64 * i + 64, 64 * k : 64 * k + 64] for rows, i, k in places]
        self.half = Placed(np.stack(tiles))
        self.single = Placed(
            np.pad(factors.features, ((0, 0), (0, wide))),
            np.pad(factors.bias / math.log(2), (0, more), constant_values=-1e30),  # of base two; no logit
        )
        self.numbers = factors.of_h, factors.of_logits / math.log(2), *factors.least


def suits(x: Tensor, classes: int) -> bool:
    """Tell whether the kernel takes contiguous float32 embeddings (n, M) of that many classes."""
    import torch

    if not gluon or torch.cuda.get_device_capability(x.device)[0] != 9:
        return False
    fits = x.shape[1] <= MOST_FEATURES and classes <= MOST_CLASSES
    return fits and x.shape[1] % 4 == 0 and x.data_ptr() % 16 == 0  # the hardware copies 16 bytes at a time


def regrets(x: Tensor, tiles: Tiles, *, unit_norm: bool, label_noise: float) -> Tensor:
    """Give the regrets (n,) of float32 embeddings (n, M) without gaps, NaN where one might be further off than it may.

    Args:
        x: embeddings.
        tiles: of the detector.
        unit_norm: whether embeddings are scaled to norm 1.
        label_noise: the share of labels taken to be drawn at random.
    """
    import torch
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    (weights,) = tiles.half.beside(x, torch.float16)
    features, bias = tiles.single.beside(x, torch.float32)
    out = torch.empty(len(x), dtype=torch.float32, device=x.device)
    programs = min(torch.cuda.get_device_properties(x.device).multi_processor_count, -(-len(x) // 128))
    with torch.cuda.device(x.get_device()):
        _kernel()[programs,](
            TensorDescriptor.from_tensor(x, [128, 32], _layout(32)),
            TensorDescriptor.from_tensor(weights.reshape(-1, 64), [64, 64], _layout(16)),
            features,
            bias,
            out,
            len(x),
            *tiles.numbers,
            label_noise,
            ACROSS=tiles.across,
            PARTS=tiles.parts,
            CLASSES=tiles.classes,
            UNIT=unit_norm,
            NOISY=label_noise > 0,
            LIMIT=LARGEST_ERROR,
            SMALLEST=SMALLEST_REGRET,
            ROW_PLACES=_ROW_PLACES,
            WEIGHT_PLACES=_WEIGHT_PLACES,
            num_warps=8,
            maxnreg=168,  # on average: those who multiply get 240, the others 24
        )
    return out


@cache
def _kernel() -> Any:
    return gluon.jit(do_not_specialize=["count"])(_regrets)  # or each number of rows would be compiled for


def _layout(bits: int) -> Any:
    return gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=bits, rank=2)


# Triton reads the source of what follows; none of its lines is ever run by Python. It knows no keyword-only arguments.
@part
def _bring_rows(
    x: tma.tensor_descriptor, rows: gl.tuple, count: gl.tensor, ACROSS: gl.constexpr
) -> None:  # pragma: no cover
    """Fill the ring with 32 features of 128 rows at a time, the last features first, zeros beyond the end."""
    n = 0
    for block in range(gl.program_id(0), gl.cdiv(count, 128), gl.num_programs(0)):
        for k in range(2 * ACROSS):
            fill(rows, n, x, block * 128, (2 * ACROSS - 1 - k) * 32)
            n += 1


@part
def _bring_weights(
    tiles: tma.tensor_descriptor, weights: gl.tuple, count: gl.tensor, TILES: gl.constexpr
) -> None:  # pragma: no cover
    """Fill the ring with all tiles, again for every block."""
    n = 0
    for _ in range(gl.program_id(0), gl.cdiv(count, 128), gl.num_programs(0)):
        for k in range(TILES):
            fill(weights, n, tiles, k * 64, 0)
            n += 1


@part
def _half(rows: gl.tuple, n: gl.tensor, LAYOUT: gl.constexpr) -> gl.tensor:  # pragma: no cover
    """Read the n-th 32 features of rows into registers."""
    entries = filled(rows, n).load(LAYOUT)
    release(rows, n)
    return entries


@part
def _with_classes(  # noqa: PLR0917  # pragma: no cover
    halves: gl.tuple,
    weights: gl.tuple,
    w: gl.tensor,
    ACROSS: gl.constexpr,
    PARTS: gl.constexpr,
    PRODUCTS: gl.constexpr,
) -> gl.tuple:
    """Multiply all features with the weights of 64 classes in each part."""
    parts = ()
    for _ in gl.static_range(PARTS):
        parts = grown(parts, gl.zeros([128, 64], gl.float32, layout=PRODUCTS))
    for i in gl.static_range(ACROSS):
        begun = ()
        for k in gl.static_range(PARTS):
            products = multiply(halves[2 * i], halves[2 * i + 1], weights, w, parts[k], i == 0)
            begun = grown(begun, hopper.warpgroup_mma_wait(2, deps=[products]))
            release(weights, w - 1)
            w += 1
        parts = begun
    done = hopper.warpgroup_mma_wait(0, deps=parts)
    release(weights, w - 1)
    return grown((), done) if PARTS == 1 else done


@part
def _consume(  # noqa: PLR0917  # pragma: no cover
    rows: gl.tuple,
    weights: gl.tuple,
    others: gl.tuple,
    count: gl.tensor,
    ACROSS: gl.constexpr,
    PARTS: gl.constexpr,
    CLASSES: gl.constexpr,
    UNIT: gl.constexpr,
    NOISY: gl.constexpr,
    LIMIT: gl.constexpr,
    SMALLEST: gl.constexpr,
) -> None:
    """Compute the regrets of every block of rows that is this program's."""
    PRODUCTS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [8, 1], instr_shape=[16, 64, 16])
    FACTORS: gl.constexpr = gl.DotOperandLayout(0, PRODUCTS, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, PRODUCTS)
    WIDTH: gl.constexpr = 64 * ACROSS
    features, bias, out, numbers = others
    n = 0  # halves of tiles of rows so far
    w = 0  # tiles of weights so far
    for block in range(gl.program_id(0), gl.cdiv(count, 128), gl.num_programs(0)):
        entries = _half(rows, n, FACTORS)
        last = gl.load(features + WIDTH - 32 + gl.arange(0, 32, layout=gl.SliceLayout(0, FACTORS)))
        of_row = power_of_two(gl.max(gl.abs(entries * last[None, :]), axis=1))
        none = by_thread(gl.zeros([128, 32], gl.float32, layout=FACTORS))
        half, sums = rounded(entries, of_row, (none, none, none), features, WIDTH - 32, WIDTH, FACTORS)
        halves = grown((), half)
        half, sums = rounded(_half(rows, n + 1, FACTORS), of_row, sums, features, WIDTH - 64, WIDTH, FACTORS)
        halves = grown(halves, half)

        h = gl.zeros([128], gl.float32, layout=ROWS)
        for j in gl.static_range(ACROSS):  # 64 columns of the whitening, the last first
            products = gl.zeros([128, 64], gl.float32, layout=PRODUCTS)
            for i in gl.static_range(j + 1):
                products = multiply(halves[2 * i], halves[2 * i + 1], weights, w, products, i == 0)
                for k in gl.static_range(2):  # meanwhile, the features that the next columns need besides
                    if j + 1 < ACROSS and (i == j - 1 + k or j == 0):
                        entries = _half(rows, n + 2 * j + 2 + k, FACTORS)
                        start = WIDTH - 32 * (2 * j + 3 + k)
                        half, sums = rounded(entries, of_row, sums, features, start, WIDTH, FACTORS)
                        halves = grown(halves, half)
                products = hopper.warpgroup_mma_wait(2, deps=[products])  # for all but those just begun
                if j > 0:
                    release(weights, w - 1)
                w += 1
            products = hopper.warpgroup_mma_wait(0, deps=[products])
            h += gl.sum(products * products, axis=1)
        n += 2 * ACROSS

        parts = _with_classes(halves, weights, w, ACROSS, PARTS, PRODUCTS)
        w += ACROSS * PARTS
        of_row = gl.convert_layout(of_row, ROWS)
        squared = gl.convert_layout(gl.sum(sums[0], axis=1), ROWS)
        doubt = gl.convert_layout(gl.sum(sums[1], axis=1), ROWS)
        logit_doubt = gl.convert_layout(gl.sum(sums[2], axis=1), ROWS)
        sums = (squared, doubt, logit_doubt)
        gamma = finish(parts, h, sums, of_row, bias, numbers, CLASSES, UNIT, NOISY, LIMIT, SMALLEST)
        at = block * 128 + gl.arange(0, 128, layout=ROWS)
        gl.store(out + at, gamma, mask=at < count)


def _regrets(  # noqa: PLR0917  # pragma: no cover
    x: tma.tensor_descriptor,
    tiles: tma.tensor_descriptor,
    features: gl.tensor,
    bias: gl.tensor,
    out: gl.tensor,
    count: gl.tensor,
    of_h: gl.tensor,
    of_logits: gl.tensor,
    least: gl.tensor,
    least_logit: gl.tensor,
    noise: gl.tensor,
    ACROSS: gl.constexpr,
    PARTS: gl.constexpr,
    CLASSES: gl.constexpr,
    UNIT: gl.constexpr,
    NOISY: gl.constexpr,
    LIMIT: gl.constexpr,
    SMALLEST: gl.constexpr,
    ROW_PLACES: gl.constexpr,
    WEIGHT_PLACES: gl.constexpr,
) -> None:
    """Give each warp its role."""
    rows = ring(gl.float32, ROW_PLACES, 128, 32)
    weights = ring(gl.float16, WEIGHT_PLACES, 64, 64)
    hopper.fence_async_shared()
    TILES: gl.constexpr = ACROSS * (ACROSS + 1) // 2 + ACROSS * PARTS
    others = (features, bias, out, (of_h, of_logits, least, least_logit, noise))
    gl.warp_specialize(
        [
            (_consume, (rows, weights, others, count, ACROSS, PARTS, CLASSES, UNIT, NOISY, LIMIT, SMALLEST)),
            (_bring_rows, (x, rows, count, ACROSS)),
            (_bring_weights, (tiles, weights, count, TILES)),
        ],
        [1, 1],
        [24, 24],
    )
