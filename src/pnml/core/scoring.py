"""From embeddings to regrets: the computation on one batch, as matrix products in the arrays' own library."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import array_api_compat as compat

from pnml.backend.arrays import has_float64, like, precision, to_numpy, working_dtype
from pnml.backend.extras import require
from pnml.backend.rows import by_chunk, check_finite, is_narrow, wide_dtype
from pnml.core import theorem
from pnml.core.scaling import EmbeddingScale, row_scale
from pnml.core.subspace import leave_one_out, leverage, xtg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pnml.backend.arrays import Array, DeviceConstants
    from pnml.core.subspace import Subspace


def assess(
    *rows_and_constants: Any, length: float = 1.0, bias_scale: float = 1.0, **options: Any
) -> tuple[Array, Array, Array, Array, Array]:
    """Give logits, p, q, xᵀg and regret of embeddings (n, M), in the dtype that all arguments share.

    Args:
        *rows_and_constants: as of :func:`ingredients`.
        length: what the weight was multiplied by, so that the logits are those of the embeddings as they came.
        bias_scale: what the bias was multiplied by, likewise.
        **options: as of :func:`ingredients`.
    """
    part = ingredients(*rows_and_constants, **options)
    xp = compat.array_namespace(part.h)
    _, (_, bias), *_ = rows_and_constants
    genies = theorem.genies(part.log_p, part.t)
    unscaled = part.projected / (length * xp.where(part.scale > 0, part.scale, xp.ones_like(part.scale)))[:, None]
    logits = unscaled + bias / bias_scale
    p = xp.exp(theorem.log_softmax(logits))
    return logits, p, genies / xp.sum(genies, axis=-1, keepdims=True), part.t[:, 0], part.regret


def regret(*rows_and_constants: Any, **options: Any) -> tuple[Array]:
    """Give what :func:`assess` gives last, and compute nothing else."""
    return (ingredients(*rows_and_constants, **options).regret,)


@dataclass(frozen=True)
class Ingredients:
    """What the regret of n scaled embeddings is made of.

    Attributes:
        projected: the weight's products with the scaled embeddings, without bias, (n, C).
        scale: the factor each embedding was scaled by, (n,).
        h: the leverage of the scaled embeddings, (n,).
        t: xᵀg, (n, 1).
        log_p: the logarithms of the model's probabilities, with label noise, (n, C).
        regret: the regret in nats, (n,).
    """

    projected: Array
    scale: Array
    h: Array
    t: Array
    log_p: Array
    regret: Array


def ingredients(
    x: Array,
    head: tuple[Array, ...],
    basis: tuple[Array, ...],
    outside_limits: tuple[float, float],
    *,
    embedding_scale: EmbeddingScale,
    label_noise: float = 0.0,
    leave_one_out_error: float | None = None,
    in_range: bool = False,
) -> Ingredients:
    """Compute the regret of embeddings (n, M) and what it is made of, in the dtype that all arguments share.

    Args:
        x: embeddings.
        head: transposed weight (M, C), times the length that embeddings are given, and bias (C,), times its scale.
        basis: whitening and null space of the :class:`~pnml.Subspace`.
        outside_limits: of the Subspace, for the precision of the embeddings.
        embedding_scale: as of the :class:`~pnml.Detector`.
        label_noise: the share of labels that are taken to be drawn at random.
        leave_one_out_error: given, the rows are training rows to be scored as if unseen; h's relative error.
        in_range: promise that no square of an embedding overflows or vanishes, which saves scaling them.
    """
    (weight, bias), (whitening, null_space) = head, basis
    xp = compat.array_namespace(x)
    scale = row_scale(x, embedding_scale)
    if in_range:  # it is quicker to scale the products than the rows
        projected = (x @ weight) * scale[:, None]
        h = leverage(x, whitening, null_space, outside_limits) * scale**2
    else:
        x = x * scale[:, None]
        projected = x @ weight
        h = leverage(x, whitening, null_space, outside_limits)
    t = xtg(h if leave_one_out_error is None else leave_one_out(h, leave_one_out_error))
    t = xp.where(scale > 0, t, xp.ones_like(t))[:, None]  # no direction: nothing the training set could say about it
    p = theorem.noisy_softmax(projected + bias, label_noise) if label_noise else None
    log_p = theorem.log_softmax(projected + bias) if p is None else xp.log(p)
    return Ingredients(projected, scale, h, t, log_p, theorem.regrets(log_p, t, p))


def by_batch(
    function: Callable[..., Any],
    x: Array,
    head: DeviceConstants,
    subspace: Subspace,
    *,
    leave_one_out: bool,
    **options: Any,
) -> list[Array]:
    """Give what :func:`assess` or :func:`regret` gives for any number of embeddings (n, M), chunk by chunk, in float64.

    The options are those of :func:`ingredients`. Each quantity comes in the library and working precision of the
    embeddings. The last is the regret: it is not finite where an embedding is not, which is looked at once, at the end,
    so that no chunk waits for another.
    """
    xp = compat.array_namespace(x)
    rows = x if has_float64(x) else to_numpy(x)
    dtype = wide_dtype(rows)
    constants = head.to(rows, dtype), subspace.basis.to(rows, dtype), subspace.outside_limits(precision(x))
    options["leave_one_out_error"] = subspace.relative_error if leave_one_out else None
    options["in_range"] = is_narrow(rows)
    parts = by_chunk(lambda chunk: function(chunk, *constants, **options), rows, dtype)
    home = compat.array_namespace(rows)
    columns = [home.concat(column) for column in zip(*parts, strict=True)]
    if not bool(home.all(home.isfinite(columns[-1]))):
        check_finite(x)
    out = working_dtype(xp, x)
    return [xp.astype(c, out) if rows is x else like(x, c, out) for c in columns]


@contextmanager
def compiling(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Give a function of PyTorch tensors as one that ``torch.compile`` has fused, which its first call waits for."""
    with warnings.catch_warnings():  # of the compiler's own making; around all threads, as the filters are theirs alike
        warnings.simplefilter("ignore")
        yield compiled(function)


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, to be compiled when it is first called; every caller gets the same one."""
    found: Callable[..., Any] = require("torch", extra="torch", what="compiled=True").compile(function, fullgraph=True)
    return found
