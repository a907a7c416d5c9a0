"""The leverage of a sample about its class, relative to the whole training set, and that of earlier layers.

**Several layers.** A learner that may adapt a linear read-out of every layer has logits ``Σ_l θ_lᵀψ_l + Wφ + b``,
linear in the concatenation of all layers: the theorem holds with the leverage of that concatenation. With its
correlation taken block-diagonal, one block a layer, leverages add.

**Only the excess.** The leverages of all layers are compared with those of training rows, and what exceeds them is
added (:mod:`pnml.core.profile`).

**Relative.** The leverage of the embedding about the mean of its class is taken relative to the leverage about the mean
of all training rows: a direction in which all classes vary alike says little about any of them. This ratio, about 1
for known samples, is a factor of the leverage. The idea comes from relative Mahalanobis distances.

**The weight of a sample.** Leverages fall like 1/N, and the regret of the theorem, which bends where they are about 1,
would become a plain product of leverage and uncertainty. A learner may give the new sample a weight, as if it had come
w times: its leverage is then w h. Here the weight is such that a typical training row, left out, has the leverage 0.3
whatever N is, and falls with the distance, so that it is the distance √h that counts, not its square.

Ratio, weight and excess are heuristics, chosen by measurement; see studies/layers/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pnml.backend.arrays import at_least, namespace
from pnml.backend.rows import divisors, row_norms
from pnml.core.model import Depth, Layer
from pnml.core.profile import Profile, excess, shares, standardise
from pnml.core.sample import NO_SAMPLE
from pnml.core.scatter import Scatter, left_out
from pnml.core.subspace import leverage_inside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml.backend.arrays import Array
    from pnml.core.correlation import Correlation

WEIGHT = 0.3
"""The leverage of a typical training row, left out of the fit."""

PER_SCATTER = 3  # constants of a scatter: means, whitening, shares of a row
SMALLEST_BACKGROUND = 1e-30
"""The leverage about the mean of all rows is taken for no less, so that the ratio to it stays finite."""
_SMALLEST_TYPICAL = 1e-9  # times 1/N, for embeddings that are the same for all training rows


class Leverages(NamedTuple):
    """The leverages of n samples.

    Attributes:
        raw: about the means: of the embedding, of the background and of each earlier layer, shape (n, 2 + L).
        centred: what they are the leverages of, each of shape (n, M).
    """

    raw: Array
    centred: list[Array]


@dataclass(frozen=True, eq=False)
class Geometry:
    """The scatters of the training rows: of every layer about the means of the classes, and of all embeddings as one.

    Attributes:
        scatters: of the embedding and of the earlier layers.
        background: of the embedding about the mean of all rows.
    """

    scatters: tuple[Scatter, ...]
    background: Scatter

    @cached_property
    def depth(self) -> Depth:
        """What the leverage is computed from."""
        starts = np.cumsum([0, *(s.means.shape[1] for s in self.scatters)])
        embedding, *layers = (
            Layer(int(start), int(start) + s.means.shape[1], s.means, s.subspace, s.row_shares)
            for start, s in zip(starts[:-1], self.scatters, strict=True)
        )
        overall = self.background
        background = Layer(0, embedding.stop, overall.means, overall.subspace, overall.row_shares)
        first = self.scatters[0]
        typical = max(float(np.median(first.typical)), _SMALLEST_TYPICAL / first.count)
        in_order = first, overall, *self.scatters[1:]
        profile = Profile.fit(np.stack([s.typical for s in in_order], axis=1), first.count)
        return Depth(embedding, background, typical, profile, tuple(layers))


def fit_geometry(correlation: Correlation) -> Geometry:
    """Decompose a statistic of rows that were scaled to norm 1 and summed by class."""
    sample, widths, counts = correlation.sample, correlation.widths, correlation.class_counts
    if sample is None or sample.classes is None or widths is None:
        raise ValueError(NO_SAMPLE)
    rows, sums = sample.numpy().astype(np.float64), correlation.class_sums
    scatters, end = [], 0
    for number, width in enumerate(widths):
        start, end = end, end + width
        layer = slice(start, end)
        matrix, some = correlation.layer_matrix(number), _to_unit_norm(rows[:, layer])
        scatters.append(Scatter.fit(matrix, counts, sums[:, layer], some, sample.classes))
        if number == 0:
            one_class = np.zeros(len(some), dtype=np.int64)
            overall = sums[:, layer].sum(axis=0)[None]
            background = Scatter.fit(matrix, counts.sum()[None], overall, some, one_class)
    return Geometry(tuple(scatters), background)


def leverages(
    x: Array, embeddings: Array, classes: Array, constants: Sequence[Array], depth: Depth, *, as_if_unseen: bool = False
) -> Leverages:
    """Compute the leverages of rows in the dtype that all arrays share.

    Args:
        x: rows as they came, shape (n, M of all layers).
        embeddings: their first layer, scaled to norm 1, shape (n, M).
        classes: the predicted classes, shape (n,).
        constants: of every scatter of ``depth`` in turn, its means, whitening and shares of a row.
        depth: which layers there are.
        as_if_unseen: the rows are training rows, to be scored as if each had been left out of the fit.
    """
    xp = namespace(x)
    raw, centred = [], []
    for number, scatter in enumerate(depth.scatters):
        means, whitening, row_shares = constants[PER_SCATTER * number : PER_SCATTER * (number + 1)]
        unit = embeddings if number < 2 else _to_unit_norm(x[:, scatter.start : scatter.stop])
        one_class = number == 1
        d = unit - (means if one_class else means[classes])
        h = leverage_inside(d, whitening)
        if as_if_unseen:
            h = left_out(h, row_shares[0] if one_class else row_shares[classes])
        raw.append(h)
        centred.append(d)
    return Leverages(xp.stack(raw, axis=1), centred)


def profile_of(constants: Sequence[Array], depth: Depth) -> tuple[Array, ...]:
    """Return the arrays of the profile, which are the last of the constants of a scoring model."""
    return tuple(constants[-len(depth.profile.arrays) :])


def embedding_share(h: Array, background: Array, typical: float) -> Array:
    """Return the leverage of embeddings, given that about the mean of their class and that about the mean of all."""
    return (WEIGHT / typical**0.5) * namespace(h).sqrt(h) * (h / at_least(background, SMALLEST_BACKGROUND))


def total_of(h: Array, depth: Depth, profile: tuple[Array, ...]) -> Array:
    """Return the leverage (n,) of samples, given that of every layer; see :func:`shares_of` for the arguments."""
    return embedding_share(h[:, 0], h[:, 1], depth.typical) + excess(h, depth.profile, profile)


def shares_of(h: Array, depth: Depth, profile: tuple[Array, ...]) -> Array:
    """Return the shares (n, 1 + L) of the embedding and the layers in the leverage.

    Args:
        h: the leverages of the embedding, of the background and of the layers, shape (n, 2 + L).
        depth: what they are the leverages of.
        profile: the arrays of its profile.
    """
    added = shares(h, depth.profile, profile)
    own = embedding_share(h[:, 0], h[:, 1], depth.typical) + added[:, 0] + added[:, 1]
    return namespace(h).concat([own[:, None], added[:, 2:]], axis=1)


def strangest(h: Array, depth: Depth, profile: tuple[Array, ...]) -> Array:
    """Return the layer that is farthest above that of training rows, in standard deviations: 0 is the embedding, (n,).

    Args:
        h: the leverages of the embedding, of the background and of the layers, shape (n, 2 + L).
        depth: what they are the leverages of.
        profile: the arrays of its profile.
    """
    xp, z = namespace(h), standardise(h, depth.profile, profile)
    of_layers = xp.concat([z[:, :1], z[:, 2:]], axis=1)  # the background is no layer
    return xp.argmax(xp.where(xp.isnan(of_layers), xp.zeros_like(of_layers), of_layers), axis=-1)


def _to_unit_norm(x: Array) -> Array:
    """Return rows (n, M) scaled to norm 1; those of norm 0 stay as they are."""
    return x / divisors(row_norms(x))[:, None]
