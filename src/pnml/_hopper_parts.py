"""What the kernel of :mod:`pnml._hopper_kernel` is made of: rings of tiles, rounding, multiplying, and the regret.

Triton reads the source of these functions; none of their lines is ever run by Python. It knows no keyword-only
arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

try:  # the functions look these up among the names of this module
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.language.nvidia import hopper
    from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
except ImportError:  # pragma: no cover - nor is there a kernel then
    gluon = gl = hopper = mbarrier = tma = None

copy: Any = getattr(tma, "async_load", None) or getattr(tma, "async_copy_global_to_shared", None)  # its older name

__all__ = [
    "by_thread",
    "fill",
    "filled",
    "finish",
    "gl",
    "gluon",
    "grown",
    "hopper",
    "multiply",
    "part",
    "power_of_two",
    "release",
    "ring",
    "rounded",
    "tma",
]


def part(function: Callable[..., Any]) -> Any:
    """Let Triton compile a function that the kernel calls."""
    return gluon.jit(function) if gluon else function


@part
def grown(values: gl.tuple, value: gl.tensor) -> gl.tuple:  # pragma: no cover
    """Append a value."""
    return values + (value,)  # noqa: RUF005 - Triton knows no other way


@part
def ring(  # pragma: no cover
    TYPE: gl.constexpr, PLACES: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr
) -> gl.tuple:
    """Make a ring: places for tiles of rows of 128 bytes, and the two barriers of each."""
    LAYOUT: gl.constexpr = gl.NVMMASharedLayout(128, 1024 // COLUMNS, 2)
    tiles = gl.allocate_shared_memory(TYPE, [PLACES, ROWS, COLUMNS], LAYOUT)
    full = gl.allocate_shared_memory(gl.int64, [PLACES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [PLACES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(PLACES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    return tiles, full, empty


@part
def fill(  # pragma: no cover
    held: gl.tuple, n: gl.tensor, source: tma.tensor_descriptor, row: gl.tensor, column: gl.tensor
) -> None:
    """Copy the n-th tile into the ring as soon as its place is empty."""
    tiles, full, empty = held
    place, turn = n % tiles.shape[0], n // tiles.shape[0]
    mbarrier.wait(empty.index(place), (turn & 1) ^ 1)
    mbarrier.expect(full.index(place), tiles.shape[1] * 128)
    copy(source, [row, column], full.index(place), tiles.index(place))


@part
def filled(held: gl.tuple, n: gl.tensor) -> gl.shared_memory_descriptor:  # pragma: no cover
    """Give the n-th tile as soon as it is there."""
    tiles, full, _ = held
    place, turn = n % tiles.shape[0], n // tiles.shape[0]
    mbarrier.wait(full.index(place), turn & 1)
    return tiles.index(place)


@part
def release(held: gl.tuple, n: gl.tensor) -> None:  # pragma: no cover
    """Let the place of the n-th tile be filled again."""
    tiles, _, empty = held
    mbarrier.arrive(empty.index(n % tiles.shape[0]))


@part
def power_of_two(values: gl.tensor) -> gl.tensor:  # pragma: no cover
    """Give the power of two that takes a value to 1 or more, below 2; but 1 for one that is 0 or out of range."""
    bits = values.to(gl.int32, bitcast=True) & 0x7F800000  # its exponent
    return gl.where((values > 1e-30) & (values < 1e30), (0x7F000000 - bits).to(gl.float32, bitcast=True), 1.0)


@part
def by_thread(entries: gl.tensor) -> gl.tensor:  # pragma: no cover
    """Sum those of a row's 32 entries that one thread has."""
    return gl.sum(gl.sum(entries.reshape([128, 4, 4, 2]), axis=3), axis=1)


@part
def rounded(  # noqa: PLR0917  # pragma: no cover
    entries: gl.tensor,
    of_row: gl.tensor,
    sums: gl.tuple,
    features: gl.tensor,
    start: gl.tensor,
    WIDTH: gl.constexpr,
    LAYOUT: gl.constexpr,
) -> gl.tuple:
    """Scale 32 features, round them to float16, and add to the sums of their squares."""
    at = features + start + gl.arange(0, 32, layout=gl.SliceLayout(0, LAYOUT))
    squared = sums[0] + by_thread(entries * entries)
    entries = entries * gl.load(at)[None, :] * of_row[:, None]
    doubt = sums[1] + by_thread(entries * entries * gl.load(at + WIDTH)[None, :])
    logit_doubt = sums[2] + by_thread(entries * entries * gl.load(at + 2 * WIDTH)[None, :])
    return entries.to(gl.float16), (squared, doubt, logit_doubt)


@part
def multiply(  # noqa: PLR0917  # pragma: no cover
    later: gl.tensor, earlier: gl.tensor, held: gl.tuple, n: gl.tensor, products: gl.tensor, FIRST: gl.constexpr
) -> gl.tensor:
    """Begin to multiply 64 features, in two halves, with the n-th tile of weights."""
    weights = filled(held, n).permute((1, 0))
    products = hopper.warpgroup_mma(later, weights.slice(32, 32), products, use_acc=not FIRST, is_async=True)
    return hopper.warpgroup_mma(earlier, weights.slice(0, 32), products, is_async=True)


@part
def power2(x: gl.tensor) -> gl.tensor:  # pragma: no cover
    return gl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], gl.float32, is_pure=True, pack=1)


@part
def log2(x: gl.tensor) -> gl.tensor:  # pragma: no cover
    return gl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], gl.float32, is_pure=True, pack=1)


@part
def inverse(x: gl.tensor) -> gl.tensor:  # pragma: no cover
    return gl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], gl.float32, is_pure=True, pack=1)


@part
def finish(  # noqa: PLR0917  # pragma: no cover
    parts: gl.tuple,
    h: gl.tensor,
    sums: gl.tuple,
    of_row: gl.tensor,
    bias: gl.tensor,
    numbers: gl.tuple,
    CLASSES: gl.constexpr,
    UNIT: gl.constexpr,
    NOISY: gl.constexpr,
    LIMIT: gl.constexpr,
    SMALLEST: gl.constexpr,
) -> gl.tensor:
    """Give regrets from products with weight, 64 classes in each part, and whitening; logarithms are of base two."""
    LOG2: gl.constexpr = 0.6931471805599453
    of_h, of_logits, least, least_logit, noise = numbers
    squared, doubt, logit_doubt = sums
    length = gl.sqrt(squared)
    scale = 1 / (of_row * length) if UNIT else 1 / of_row
    share = gl.sqrt((doubt + least) / h)
    trusted = (length > 1e-15) & (length < 1e15) & (h > 1e-30) & (h < 1e30)  # no square overflowed or vanished
    h = h * of_h * scale * scale
    t = h / (1 + h)

    classes = gl.arange(0, 64, layout=gl.SliceLayout(0, parts[0].type.layout))
    logits = ()
    top = gl.full_like(h, -1e30)
    for i in gl.static_range(len(parts)):
        some = parts[i] * (scale * of_logits)[:, None] + gl.load(bias + 64 * i + classes)[None, :]
        logits = grown(logits, some)
        top = gl.maximum(top, gl.max(some, axis=1))
    powers = ()
    whole = gl.zeros_like(h)
    for i in gl.static_range(len(parts)):
        some = power2(logits[i] - top[:, None])
        powers = grown(powers, some)
        whole += gl.sum(some, axis=1)

    total = gl.zeros_like(h)
    lowest = gl.zeros_like(h)
    for i in gl.static_range(len(parts)):
        if NOISY:
            p = powers[i] * ((1 - noise) / whole)[:, None] + noise / CLASSES
            log_p = log2(p)
        else:
            p = powers[i] * (1 / whole)[:, None]
            log_p = logits[i] - (top + gl.log2(whole))[:, None]
        y = (t * LOG2)[:, None] * log_p
        ratio = power2((1 - t)[:, None] * log_p)
        # ratio (1 − exp(y)), by a series where the difference would cancel
        v = gl.where(y > -0.015625, -ratio * y * (1 + y * (0.5 + y / 6)), ratio - p)
        v = v * (1 - p) * inverse(1 + v)
        if 64 * i + 64 > CLASSES:
            is_class = (64 * i + classes < CLASSES)[None, :]
            v = gl.where(is_class, v, 0.0)
            log_p = gl.where(is_class, log_p, 0.0)
        total += gl.sum(v, axis=1)
        lowest = gl.minimum(lowest, gl.min(log_p, axis=1))

    z = total / (2 + total)  # log(1 + total), by the series of the inverse hyperbolic tangent where total is small
    z2 = z * z
    small = 2 * z * (1 + z2 * (1 / 3 + z2 * (1 / 5 + z2 * (1 / 7 + z2 * (1 / 9)))))
    gamma = gl.where(total < 0.5, small, gl.log(1 + total))
    steepness = -lowest * LOG2
    error = share * (2 + share) * (1 - t) * (1 + t * steepness)
    error += 2 * gl.sqrt(logit_doubt + least_logit) * scale + 2.0**-22 * steepness
    return gl.where(trusted & (error <= LIMIT) & (gamma > SMALLEST), gamma, float("nan"))
