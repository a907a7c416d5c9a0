"""The leverage of a sample about its class, relative to the whole training set, and that of earlier layers.

**Several layers.** A learner that may adapt a linear read-out of every layer has logits ``Σ_l θ_lᵀψ_l + Wφ + b``,
linear in the concatenation of all layers: the theorem holds with the leverage of that concatenation. With its
correlation taken block-diagonal, one block a layer, leverages add.

**Only the excess.** In the bulk of the training rows, the leverage of an early layer varies with what has nothing to do
with classes, and adding it would drown the embedding's. So a layer has a say where it is stranger than 98 % of the
training rows, each left out of the fit. A sample as far above that limit as the limit is above the median adds twice
the leverage of a typical embedding, one twice as far adds twice as much as that.

**Relative.** The leverage of the embedding about the mean of its class is multiplied by its ratio to the leverage about
the mean of all training rows: a direction in which all classes vary alike says little about any of them. This factor is
a heuristic, about 1 for known samples; it comes from relative Mahalanobis distances.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pnml.backend.arrays import namespace
from pnml.backend.rows import divisors, row_norms
from pnml.core.model import Depth, Layer
from pnml.core.scatter import Scatter
from pnml.core.subspace import leverage_inside

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml.backend.arrays import Array
    from pnml.core.correlation import Correlation

LEVEL = 0.98
"""The share of training rows, each left out of the fit, whose leverage leaves a layer silent."""

SLOPE = 2.0
"""What a layer adds for a sample as far above its limit as the limit is above the median: so many times the leverage of
a typical embedding."""

PER_SCATTER = 3  # constants of a scatter: means, whitening, shares of a row
SMALLEST_BACKGROUND = 1e-30
"""The leverage about the mean of all rows is taken for no less, so that the ratio to it stays finite."""
_SMALLEST_LIMIT = 1e-9  # times 1/N, for layers that are the same for all training rows


class Leverages(NamedTuple):
    """The leverages of n samples.

    Attributes:
        shares: of the embedding and of each earlier layer in the leverage, shape (n, 1 + L).
        raw: leverages about the means: of the embedding, of the background, of each layer, each of shape (n,).
        centred: what they are the leverages of, each of shape (n, M).
    """

    shares: Array
    raw: list[Array]
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
        typical = float(np.median(self.scatters[0].typical))
        medians = [float(np.median(s.typical)) for s in self.scatters[1:]]
        limits = [max(float(np.quantile(s.typical, LEVEL)), _SMALLEST_LIMIT / s.count) for s in self.scatters[1:]]
        slopes = [
            SLOPE * typical * high / max(high - low, 1e-6 * high) for high, low in zip(limits, medians, strict=True)
        ]
        return Depth(embedding, background, tuple(layers), tuple(limits), tuple(slopes))


def fit_geometry(correlation: Correlation) -> Geometry:
    """Decompose a statistic of rows that were scaled to norm 1 and summed by class."""
    sample, widths, counts = correlation.sample, correlation.widths, correlation.class_counts
    if sample is None or sample.classes is None or widths is None:
        raise ValueError(
            'embedding_scale="auto" needs a sample of the training rows, and this Correlation was restored '
            'without one: fit it on the rows again, or take embedding_scale="paper"'
        )
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
            a = row_shares[0] if one_class else row_shares[classes]
            spread = xp.clip(a * h, None, 1 - 1e-12)
            h = a * spread / (1 - spread)
        raw.append(h)
        centred.append(d)
    shares = [raw[0] * (raw[0] / xp.clip(raw[1], SMALLEST_BACKGROUND, None))]
    for h, limit, slope in zip(raw[2:], depth.limits, depth.slopes, strict=True):
        shares.append(slope * xp.clip(h / limit - 1, 0, None))
    return Leverages(xp.stack(shares, axis=1), raw, centred)


def _to_unit_norm(x: Array) -> Array:
    """Return rows (n, M) scaled to norm 1; those of norm 0 stay as they are."""
    return x / divisors(row_norms(x))[:, None]
