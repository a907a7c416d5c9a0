"""From rows to regrets, by matrix products in the library of the rows.

Rows that came in float32 are scored in float32 where that is precise enough, which is measured once, when a model is
made: some training rows, and rows far from them, are scored in both precisions (:func:`single_error`).
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import is_recorded, is_remote, is_traced, namespace, precision, side_by_side
from pnml.backend.recorded import Recorded
from pnml.backend.rows import SMALLEST_NORM, by_chunk, chunk_length, keep_freed_memory, squares, wide_dtype
from pnml.backend.threads import spread
from pnml.core import theorem
from pnml.core.geometry import embedding_share
from pnml.core.profile import excess, shares, standardise
from pnml.core.scatter import left_out
from pnml.core.subspace import leave_one_out, leverage, xtg

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.backend.arrays import Array
    from pnml.core.model import Constants, Factor, ScoringModel

    Function = Callable[[ScoringModel, Constants, "Chunk"], Array]

LARGEST_ERROR = 3e-4
"""Regrets of a model are computed in float32 if none of those tried is off by a larger share, so that hardly any other
is off by 1 %."""

_TRIED_ROWS = 64  # of each kind, to tell whether float32 is precise enough
_SMALLEST_REGRET = 1e-30  # errors are relative to no less, as float32 has hardly smaller numbers
_RULED_OUT = -1e30  # logits of classes that a model does not allow for a sample
_MOST_ROWS = 2048  # on a GPU: in a larger batch arithmetic costs more than calls


class Chunk(NamedTuple):
    """Some rows, in the dtype that they are scored in.

    Attributes:
        x: embeddings, followed by the features of earlier layers, (n, M).
        z: the model's own logits, (n, C); computed from the embeddings when None.
        eps: the precision in which the embeddings came, which decides when one is outside the training span.
        as_if_unseen: the rows are training rows, to be scored as if each had been left out of the fit.
    """

    x: Array
    z: Array | None
    eps: float
    as_if_unseen: bool = False


class Leverages(NamedTuple):
    """The leverages of n samples.

    Attributes:
        total: which xᵀg is made of, (n,).
        raw: about the overall means: of the embedding, the layers, the input and the lengths, (n, blocks); None if the
            leverage is the paper's.
        own: the embedding's own share of the total, (n,); None if the leverage is the paper's.
    """

    total: Array
    raw: Array | None = None
    own: Array | None = None


class Terms(NamedTuple):
    """What the regret of n samples is computed from.

    Attributes:
        logits: the logits that the probabilities are the softmax of, (n, C).
        leverages: of the samples.
        undirected: whether the embedding has no direction, so that it cannot be scaled to norm 1, (n,); None if all
            have one.
        ruled_out: logits of this size or less are of classes that the model does not allow for a sample; None if it
            allows all.
    """

    logits: Array
    leverages: Leverages
    undirected: Array | None
    ruled_out: float | None = None

    @property
    def xtg(self) -> Array:
        """xᵀg, (n,); 1 for embeddings without a direction."""
        t = xtg(self.leverages.total)
        if self.undirected is None:
            return t
        xp = namespace(t)
        return xp.where(self.undirected, xp.ones_like(t), t)


class Scorer:
    """Regrets, and what they are made of.

    Args:
        model: what they are computed from.
        single: whether rows that came in float32 or less are scored in float32.
    """

    def __init__(self, model: ScoringModel, *, single: bool = False) -> None:
        self.model = model
        self.single = single

    def regret(self, rows: Array, logits: Array | None = None, *, as_if_unseen: bool = False) -> Array:
        """Return the regrets of rows (n, M), NaN for rows that are not finite.

        Args:
            rows: embeddings, followed by the features of earlier layers.
            logits: the model's own, (n, C); computed from the embeddings when left out.
            as_if_unseen: the rows are training rows, to be scored as if each had been left out of the fit.
        """
        if is_remote(rows) and not as_if_unseen and rows.shape[0] <= _MOST_ROWS and not is_traced():
            return self._of_few(rows, logits)
        return self._by_chunk(_regrets, rows, logits, as_if_unseen=as_if_unseen)

    @cached_property
    def _of_few(self) -> Recorded:
        """The regrets of few rows on a GPU, on which a call costs more than its arithmetic: recorded and replayed."""
        return Recorded(lambda rows, logits: self._by_chunk(_regrets, rows, logits))

    def predictive(self, rows: Array, logits: Array | None = None) -> Array:
        """Return the pNML probabilities q of rows (n, M), shape (n, C)."""
        return self._by_chunk(_predictive, rows, logits)

    def xtg(self, rows: Array, logits: Array | None = None) -> Array:
        """Return xᵀg of rows (n, M), shape (n,)."""
        return self._by_chunk(_xtg, rows, logits)

    def shares(self, rows: Array, logits: Array | None = None) -> Array:
        """Return the shares of every block in the leverage of rows (n, M), shape (n, blocks)."""
        return self._by_chunk(_shares, rows, logits)

    def strangest(self, rows: Array, logits: Array | None = None) -> Array:
        """Return the block of rows (n, M) that is farthest above training rows, (n,): 0 is the embedding."""
        return self._by_chunk(_strangest, rows, logits)

    def regret_and_xtg(self, rows: Array, logits: Array | None = None) -> tuple[Array, Array]:
        """Return the regrets of rows (n, M) and their xᵀg, which costs nothing beside, (n,) each."""
        both = self._by_chunk(_regrets_and_xtg, rows, logits)
        return both[:, 0], both[:, 1]

    def relative_logits(self, rows: Array) -> Array:
        """Return the logits of the last layer for embeddings as they are, less what all classes share, (n, C)."""
        return self._by_chunk(_relative_logits, rows, None)

    def logits(self, rows: Array) -> Array:
        """Return the logits of the last layer for embeddings (n, M) as they are, shape (n, C)."""
        dtype = wide_dtype(rows)
        head = self.model.head.to(rows, dtype)
        found: Array = by_chunk(_logits, rows[:, : self.model.n_features], dtype, *head, width=self.model.width)
        return found

    def _by_chunk(self, function: Function, rows: Array, logits: Array | None, *, as_if_unseen: bool = False) -> Array:
        """Apply a function to chunks of rows that stay in a processor's cache, and concatenate what it returns."""
        keep_freed_memory()
        dtype = self._dtype(rows)
        constants = self.model.constants(rows, dtype)
        eps = precision(rows)
        length = chunk_length(rows, 4 if self.single else 8, self.model.width)

        def work(start: int) -> Array:
            xp = namespace(rows)
            x = rows[start : start + length]
            z = None if logits is None else logits[start : start + length]
            with np.errstate(all="ignore"):  # of the thread that computes
                x = x if x.dtype == dtype else xp.astype(x, dtype)
                z = z if z is None or z.dtype == dtype else xp.astype(z, dtype)
                return function(self.model, constants, Chunk(x, z, eps, as_if_unseen))

        if rows.shape[0] <= length:
            return work(0)
        starts = range(0, rows.shape[0], length)
        parts = spread(work, starts) if isinstance(rows, np.ndarray) else map(work, starts)
        return namespace(rows).concat(list(parts))

    def _dtype(self, rows: Array) -> Any:
        xp = namespace(rows)
        if self.single and precision(rows) > 1e-12 and _multiplies_in_full(rows):
            return xp.float32
        return wide_dtype(rows)


def _multiplies_in_full(rows: Array) -> bool:
    """Return whether products of float32 are computed in no less than float32, and not for a graph."""
    if isinstance(rows, np.ndarray) or not compat.is_torch_array(rows):
        return True
    if is_recorded(rows):
        return False
    import torch

    try:
        full = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # torch has two ways to set it, and refuses to answer when both were used
        return False
    return full and not torch.is_autocast_enabled(rows.device.type)


def compute_terms(model: ScoringModel, constants: Constants, chunk: Chunk) -> Terms:
    """Compute the terms of rows in the dtype that they and the constants share."""
    x, z = chunk.x, chunk.z
    norms, divisors = model.layout.norms(x)
    undirected = None
    if model.unit_norm and divisors is not norms:
        undirected = norms[:, 0] <= SMALLEST_NORM
    blocks = model.layout.blocks(x, norms, divisors)
    logits = None
    ruled_out = None
    if z is not None:
        logits = z
        ruled_out = _RULED_OUT
    if z is not None and model.unit_norm:
        z = z - namespace(z).max(z, axis=-1, keepdims=True)  # what classes have in common would be rounded along
        logits = (z - constants.head_bias) * (model.length / divisors[:, :1]) + constants.head_bias * model.bias_scale
    if model.geometry is None:
        if logits is None:
            logits = blocks[0] @ constants.weight + constants.bias
        return Terms(logits, _plain(model, constants, blocks[0], chunk), undirected, ruled_out)
    mean = constants.others[0]
    centred = blocks[0] - mean
    if logits is None and constants.joint:
        weight, bias = constants.joint
        product = centred @ weight
        y = product[:, : mean.shape[0]]
        logits = product[:, mean.shape[0] :] + bias
    else:
        y = centred @ constants.whitening
    if logits is None:
        logits = (x[:, : model.n_features] @ constants.weight) / divisors[:, :1] + constants.bias
    leverages = _layered(model, constants, y, blocks[1:], logits, as_if_unseen=chunk.as_if_unseen)
    return Terms(logits, leverages, undirected, ruled_out)


def _plain(model: ScoringModel, constants: Constants, x: Array, chunk: Chunk) -> Leverages:
    """Return the leverage of the paper, of embeddings x as they are scaled."""
    assert model.subspace is not None  # noqa: S101 - of the paper's leverage
    h = leverage(x, constants.whitening, constants.others[0], model.subspace.outside_limits(chunk.eps))
    if chunk.as_if_unseen:
        h = leave_one_out(h, model.subspace.relative_error)
    return Leverages(h)


def _layered(
    model: ScoringModel, constants: Constants, y: Array, blocks: list[Array], logits: Array, *, as_if_unseen: bool
) -> Leverages:
    """Return the leverage of "auto", given embeddings y about their mean and whitened, and the other blocks."""
    geometry = model.geometry
    assert geometry is not None  # noqa: S101 - of "auto"
    _, background, centres, row_shares = constants.others
    classes = logits.argmax(-1) if type(logits) is np.ndarray else namespace(logits).argmax(logits, axis=-1)
    beside = centres[classes]
    beside -= y
    within = squares(beside)
    raw = [(y * y) @ background]
    for block, block_mean, factors in zip(blocks, constants.means, constants.factors, strict=True):
        raw.append(_triangular(block - block_mean, factors))
    h = side_by_side(raw)
    if as_if_unseen:
        within = left_out(within, row_shares[classes])
        h = left_out(h, geometry.embedding.row_share)
    own = embedding_share(within, h[:, 0], geometry.embedding.typical)
    return Leverages(own + excess(h, geometry.profile, constants.profile), h, own)


def _triangular(x: Array, factors: tuple[Factor, ...]) -> Array:
    """Return ‖Tᵀx‖² of rows (n, w)."""
    first, *others = factors
    found = squares(x[:, : first.stop] @ first.columns)
    for stop, columns in others:
        found = found + squares(x[:, :stop] @ columns)
    return found


def _logits(x: Array, weight: Array, bias: Array) -> Array:
    return x @ weight + bias


def _regrets(model: ScoringModel, constants: Constants, chunk: Chunk) -> Array:
    return regrets_of(model, compute_terms(model, constants, chunk), chunk.x)


def regrets_of(model: ScoringModel, terms: Terms, x: Array) -> Array:
    """Return the regrets of rows x (n, M), given their terms; NaN for rows that are not finite."""
    xp = namespace(x)
    t = xtg(terms.leverages.total)
    regret = theorem.regrets_of_logits(terms.logits, t, model.label_noise, ruled_out=terms.ruled_out)
    if terms.undirected is not None:
        regret = xp.where(terms.undirected, xp.full_like(regret, model.largest_regret), regret)
    if not model.unit_norm or terms.undirected is not None:  # the others are NaN already
        finite = xp.isfinite(xp.sum(x, axis=-1))  # a sum of finite numbers may overflow
        if type(x) is not np.ndarray or not finite.all():
            regret = xp.where(xp.all(xp.isfinite(x), axis=-1), regret, xp.full_like(regret, math.nan))
    return regret


def _regrets_and_xtg(model: ScoringModel, constants: Constants, chunk: Chunk) -> Array:
    terms = compute_terms(model, constants, chunk)
    return side_by_side([regrets_of(model, terms, chunk.x), terms.xtg])


def _relative_logits(model: ScoringModel, constants: Constants, chunk: Chunk) -> Array:
    scaled = chunk.x[:, : model.n_features] @ constants.weight
    return scaled / model.length + constants.head_bias


def _predictive(model: ScoringModel, constants: Constants, chunk: Chunk) -> Array:
    terms = compute_terms(model, constants, chunk)
    log_p = theorem.noisy_log_softmax(terms.logits, model.label_noise, ruled_out=_RULED_OUT)
    return theorem.predictives(log_p, terms.xtg[:, None])


def _xtg(model: ScoringModel, constants: Constants, chunk: Chunk) -> Array:
    return compute_terms(model, constants, chunk).xtg


def _shares(model: ScoringModel, constants: Constants, chunk: Chunk) -> Array:
    found = compute_terms(model, constants, chunk).leverages
    if found.raw is None or found.own is None or model.geometry is None:
        return found.total[:, None]
    added = shares(found.raw, model.geometry.profile, constants.profile)
    xp = namespace(added)
    return xp.concat([(found.own + added[:, 0])[:, None], added[:, 1:]], axis=1)


def _strangest(model: ScoringModel, constants: Constants, chunk: Chunk) -> Array:
    raw = compute_terms(model, constants, chunk).leverages.raw
    xp = namespace(chunk.x)
    if raw is None or model.geometry is None:
        return xp.zeros_like(chunk.x[:, 0], dtype=xp.int64)
    found = standardise(raw, model.geometry.profile, constants.profile)
    return xp.argmax(xp.where(xp.isnan(found), xp.zeros_like(found), found), axis=-1)


def single_error(model: ScoringModel, rows: np.ndarray[Any, Any]) -> float:
    """Return the largest relative error of regrets in float32, of some training rows (n, M) and of rows far from them.

    A model whose own leverage has directions without training rows tells these from others by less than float32 has.
    """
    if model.subspace is not None and model.subspace.rank < model.n_features:
        return math.inf
    rng = np.random.default_rng(0)
    some = rows[np.arange(_TRIED_ROWS) % len(rows)].astype(np.float64)
    kinds = [
        some,
        some + rng.normal(size=some.shape) * some.std(axis=0),
        (some + some[rng.permutation(len(some))]) / 2,
        some[:, rng.permutation(some.shape[1])],
        some * 1e3,
        some * 1e-3,
    ]
    with np.errstate(over="ignore"):
        tried = np.concatenate(kinds).astype(rows.dtype)
        logits = Scorer(model).logits(tried).astype(tried.dtype)
    worst = 0.0
    for given in (None, logits):
        exact = Scorer(model).regret(tried, given)
        single = Scorer(model, single=True).regret(tried, given)
        errors = np.abs(single - exact) / np.maximum(exact, _SMALLEST_REGRET)
        known = np.isfinite(exact)
        worst = max(worst, float(np.max(np.where(np.isnan(errors), math.inf, errors)[known], initial=0.0)))
    return worst
