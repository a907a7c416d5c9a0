"""From rows to regrets, by matrix products.

A scorer returns the regret of every row and whether it can be trusted. The detector computes in float32 what came in
float32 (:mod:`pnml.core.float32_scorer`), and sends rows that float32 cannot be trusted with to float64.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from pnml.backend.arrays import namespace, working_dtype
from pnml.backend.recorded import Recorded
from pnml.backend.rows import SMALLEST_NORM, by_chunk, divisors, row_norms, wide_dtype
from pnml.core import theorem
from pnml.core.depth import leverages, profile_of, shares_of, strangest, total_of
from pnml.core.joined import joined_leverages, unit_blocks
from pnml.core.subspace import leave_one_out, leverage, xtg

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.backend.arrays import Array
    from pnml.core.model import ScoringModel


class Terms(NamedTuple):
    """What the regret of n embeddings is computed from.

    Attributes:
        log_p: the logarithms of the model's probabilities, label noise included, (n, C).
        p: the probabilities, where label noise keeps them clear of 0; None without label noise.
        leverage: of all layers together, (n,).
        raw: the leverages of the embedding, of the background and of the layers about class means, (n, 2 + L); None if
            the leverage is not about class means.
        undirected: whether the embedding has no direction, so that it cannot be scaled to norm 1, (n,).
    """

    log_p: Array
    p: Array | None
    leverage: Array
    raw: Array | None
    undirected: Array

    @property
    def xtg(self) -> Array:
        """xᵀg, (n, 1); 1 for embeddings without a direction."""
        xp, t = namespace(self.leverage), xtg(self.leverage)
        return xp.where(self.undirected, xp.ones_like(t), t)[:, None]

    def regret(self, largest: float) -> Array:
        """Return the regret, (n,); ``largest`` for embeddings without a direction."""
        xp = namespace(self.log_p)
        found = theorem.regrets(self.log_p, xtg(self.leverage)[:, None], self.p)
        return xp.where(self.undirected, xp.full_like(found, largest), found)


def compute_terms(
    x: Array, constants: tuple[Array, ...], model: ScoringModel, eps: float, *, as_if_unseen: bool = False
) -> Terms:
    """Compute the terms of rows (n, M) in the dtype that x and the constants share.

    Args:
        x: embeddings, followed by the features of earlier layers.
        constants: ``model.constants`` in the library, on the device and in the dtype of ``x``.
        model: what is scored with.
        eps: the precision in which the embeddings came, which decides when one is outside the training span.
        as_if_unseen: the embeddings are training rows, to be scored as if each had been left out of the fit.
    """
    weight, bias, *geometry = constants
    xp, joined = namespace(x), model.joined
    embeddings = x[:, : model.n_features]
    h: Array | None = None
    if joined is not None and joined.serves(x) and not as_if_unseen:
        blocks = unit_blocks(x, joined)
        undirected = blocks.norms[:, 0] <= SMALLEST_NORM
        logits = blocks.x[:, 0, : model.n_features] @ weight + bias
        h = joined_leverages(blocks, xp.argmax(logits, axis=-1), joined)
    else:
        norms = row_norms(embeddings)
        undirected = norms <= (SMALLEST_NORM if model.unit_norm else -math.inf)  # as they are, all have one
        if model.unit_norm:
            embeddings = embeddings / divisors(norms)[:, None]
        logits = embeddings @ weight + bias
        if model.depth is not None:
            classes = xp.argmax(logits, axis=-1)
            h = leverages(x, embeddings, classes, geometry, model.depth, as_if_unseen=as_if_unseen).raw
    if model.depth is None:
        whitening, null_space = geometry
        total = leverage(embeddings, whitening, null_space, model.subspace.outside_limits(eps))
        total = leave_one_out(total, model.subspace.relative_error) if as_if_unseen else total
    else:
        total = total_of(h, model.depth, profile_of(geometry, model.depth))
    if not model.label_noise:
        return Terms(theorem.log_softmax(logits), None, total, h, undirected)
    p = theorem.noisy_softmax(logits, model.label_noise)
    return Terms(xp.log(p), p, total, h, undirected)


class Float64Scorer:
    """Regrets in float64, exact to rounding whatever the precision of the embeddings."""

    def __init__(self, model: ScoringModel) -> None:
        self.model = model

    def score(self, x: Array, eps: float) -> tuple[Array, Array]:
        """Return the regret of embeddings (n, M), and whether it is finite: it is not where an embedding is not."""
        regret = self.regret(x, eps)
        return regret, namespace(x).isfinite(regret)

    def regret(self, x: Array, eps: float, *, as_if_unseen: bool = False) -> Array:
        """Return the regret of embeddings (n, M), or of training rows as if they had not been fitted on."""
        return self._by_chunk(_regret_chunk, x, eps, as_if_unseen)

    @cached_property
    def of_few(self) -> Recorded:
        """The regrets of few rows on a GPU, about class means; NaN for rows that are not finite.

        They come in the precision of a result, so that all of the work is recorded.
        """
        return Recorded(self._regret_of_finite)

    def _regret_of_finite(self, x: Array) -> Array:
        xp, regret = namespace(x), self.regret(x, 0.0)
        if self.model.joined is None or not self.model.joined.serves(x):  # where they are not NaN already
            regret = xp.where(xp.all(x - x == 0, axis=-1), regret, xp.full_like(regret, xp.nan))
        return xp.astype(regret, working_dtype(xp, x), copy=False)

    def predictive(self, x: Array, eps: float) -> Array:
        """Return the pNML probabilities q of embeddings (n, M), shape (n, C)."""
        return self._by_chunk(_predictive_chunk, x, eps)

    def xtg(self, x: Array, eps: float) -> Array:
        """Return xᵀg of embeddings (n, M), shape (n,)."""
        return self._by_chunk(_xtg_chunk, x, eps)

    def shares(self, x: Array, eps: float) -> Array:
        """Return the shares of every layer in the leverage of rows (n, M), shape (n, 1 + L)."""
        return self._by_chunk(_shares_chunk, x, eps)

    def strangest(self, x: Array, eps: float) -> Array:
        """Return the layer of rows (n, M) that is farthest above training rows, (n,): 0 is the embedding."""
        return self._by_chunk(_strangest_chunk, x, eps)

    def logits(self, x: Array) -> Array:
        """Return the logits of the last layer for embeddings (n, M) as they are, shape (n, C)."""
        embeddings, dtype = x[:, : self.model.n_features], wide_dtype(x)
        return by_chunk(_logits_chunk, embeddings, dtype, *self.model.head.to(x, dtype), width=self.model.width)

    def _by_chunk(self, function: Callable[..., Array], x: Array, eps: float, *args: Any) -> Array:
        model, dtype = self.model, wide_dtype(x)
        return by_chunk(function, x, dtype, model.constants.to(x, dtype), model, eps, *args, width=model.width)


def _regret_chunk(
    x: Array,
    constants: tuple[Array, ...],
    model: ScoringModel,
    eps: float,
    as_if_unseen: bool,  # noqa: FBT001
) -> Array:
    return compute_terms(x, constants, model, eps, as_if_unseen=as_if_unseen).regret(model.largest_regret)


def _predictive_chunk(x: Array, constants: tuple[Array, ...], model: ScoringModel, eps: float) -> Array:
    terms = compute_terms(x, constants, model, eps)
    return theorem.predictives(terms.log_p, terms.xtg)


def _xtg_chunk(x: Array, constants: tuple[Array, ...], model: ScoringModel, eps: float) -> Array:
    return compute_terms(x, constants, model, eps).xtg[:, 0]


def _shares_chunk(x: Array, constants: tuple[Array, ...], model: ScoringModel, eps: float) -> Array:
    terms, depth = compute_terms(x, constants, model, eps), model.depth
    if terms.raw is None or depth is None:
        return terms.leverage[:, None]
    return shares_of(terms.raw, depth, profile_of(constants, depth))


def _strangest_chunk(x: Array, constants: tuple[Array, ...], model: ScoringModel, eps: float) -> Array:
    raw, depth = compute_terms(x, constants, model, eps).raw, model.depth
    if raw is None or depth is None:
        return namespace(x).zeros_like(x[:, 0], dtype=namespace(x).int64)
    return strangest(raw, depth, profile_of(constants, depth))


def _logits_chunk(x: Array, weight: Array, bias: Array) -> Array:
    return x @ weight + bias
