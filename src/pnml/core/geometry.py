"""What the leverage of "auto" is computed from: of the embedding, of earlier layers, of the input, of all lengths.

**Several layers.** A learner that may adapt a linear read-out of every layer has logits ``Σ_l θ_lᵀψ_l + Wφ + b``,
linear in the concatenation of all layers: the theorem holds with the leverage of that concatenation. With its
correlation taken block-diagonal, one block a layer, leverages add.

**Only the excess.** The leverages of layers, input and lengths about their overall means are compared with those of
training rows, and what exceeds them is added (:mod:`pnml.core.profile`); without layers, that of the embedding is.

**Relative.** The embedding's own leverage is that about the mean of its class, taken relative to the one about the mean
of all training rows: a direction in which all classes vary alike says little about any of them. This ratio, about 1 for
known samples, is a factor of the leverage. The idea comes from relative Mahalanobis distances.

**The weight of a sample.** Leverages fall like 1/N, and the regret of the theorem, which bends where they are about 1,
would become a plain product of leverage and uncertainty. A learner may give the new sample a weight, as if it had come
w times: its leverage is then w h. Here the weight is such that a typical training row, left out, has the leverage 0.3
whatever N is, and falls with the distance, so that it is the distance √h that counts, not its square.

**One product for both leverages of the embedding.** With W the scatter about the class means and B that about the
overall mean, ridges included, there is a T with ``TᵀWT = I`` and ``TᵀBT = D`` diagonal. With y = Tᵀ(u − μ), the
leverage about the mean μ_c is ``‖y − Tᵀ(μ_c − μ)‖²``, and the one about μ is ``Σ y²/D``.

Ratio, weight and excess are heuristics, chosen by measurement; see docs/mathematics.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import at_least, namespace
from pnml.backend.decompositions import eigh
from pnml.backend.threads import spread
from pnml.core.profile import Profile
from pnml.core.scatter import Scatter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.backend.arrays import Array
    from pnml.core.correlation import Correlation

WEIGHT = 0.3
"""The leverage of a typical training row, left out of the fit."""

_SMALLEST_BACKGROUND = 1e-30  # the leverage about the mean of all rows is taken for no less: a ratio to it stays finite
_SMALLEST_TYPICAL = 1e-9  # times 1/N, for embeddings that are the same for all training rows


@dataclass(frozen=True, eq=False)
class EmbeddingGeometry:
    """The leverages of embeddings about the mean of their class, and about the mean of all.

    Attributes:
        mean: of all embeddings, μ, shape (m,).
        whitening: T, shape (m, m).
        background: 1/D, shape (m,).
        centres: Tᵀ(μ_c − μ) of every class, shape (C, m).
        row_shares: how much farther a row is from the mean of its class without it, shape (C,).
        row_share: how much farther a row is from the mean of all without it.
        typical: the median leverage of training rows about the means of their classes, each left out.
    """

    mean: NDArray[Any]
    whitening: NDArray[Any]
    background: NDArray[Any]
    centres: NDArray[Any]
    row_shares: NDArray[Any]
    row_share: float
    typical: float


@dataclass(frozen=True, eq=False)
class BlockGeometry:
    """The leverages of one of the other blocks about its mean.

    Attributes:
        mean: shape (w,).
        whitening: shape (w, w), upper triangular.
    """

    mean: NDArray[Any]
    whitening: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Geometry:
    """All that the leverage of "auto" is computed from.

    Attributes:
        embedding: of the embedding.
        blocks: of the features of earlier layers, of the input as it comes, if there is one, and of the lengths.
        profile: what the leverages about overall means are compared with.
    """

    embedding: EmbeddingGeometry
    blocks: tuple[BlockGeometry, ...]
    profile: Profile

    @classmethod
    def fit(cls, correlation: Correlation) -> Geometry:
        """Decompose a statistic of rows that were summed by class."""
        sample = correlation.sample
        if sample is None or sample.classes is None:
            raise ValueError(
                'embedding_scale="auto" needs a sample of the training rows and their classes, and this Correlation '
                "has none: fit on the rows again"
            )
        rows = sample.numpy().astype(np.float64)
        layout = correlation.layout
        samples = layout.blocks(rows, *layout.norms(rows))
        count = np.array([correlation.count])
        one_class = np.zeros(len(rows), dtype=np.int64)
        by_class = correlation.class_counts, correlation.class_sums, samples[0], sample.classes

        def fit(number: int) -> tuple[Scatter, NDArray[np.float64]]:
            """Return the scatter of a block, of the embedding about class means for −1, and its whitening."""
            if number < 0:
                return Scatter.fit(correlation.matrix, *by_class), np.empty(0)
            scatter = Scatter.fit(
                correlation.block_matrix(number),
                count,
                correlation.block_sum(number)[None],
                samples[number],
                one_class,
                scaled=layout.input_layer and number == len(layout.widths),
            )
            return scatter, scatter.whitening if number else np.empty(0)

        (within, _), (overall, _), *others = spread(fit, range(-1, len(samples)))
        profile = Profile.fit(np.stack([overall.typical, *(s.typical for s, _ in others)], axis=1), correlation.count)
        blocks = tuple(BlockGeometry(s.means[0], whitening) for s, whitening in others)
        return cls(_embedding(within, overall), blocks, profile)


def _embedding(within: Scatter, overall: Scatter) -> EmbeddingGeometry:
    """Diagonalise both scatters of the embeddings at the same time."""
    root = within.eigenvectors / np.sqrt(within.eigenvalues + within.ridge)
    turned = overall.eigenvectors.T @ root
    ratios, rotation = eigh((turned.T * (overall.eigenvalues + overall.ridge)) @ turned)
    whitening = root @ rotation
    return EmbeddingGeometry(
        mean=overall.means[0],
        whitening=whitening,
        background=1 / np.maximum(ratios, 1e-300),
        centres=(within.means - overall.means[0]) @ whitening,
        row_shares=within.row_shares,
        row_share=float(overall.row_shares[0]),
        typical=max(float(np.median(within.typical)), _SMALLEST_TYPICAL / within.count),
    )


def embedding_share(h: Array, background: Array, typical: float) -> Array:
    """Return the leverage of embeddings, given that about the mean of their class and that about the mean of all."""
    return (WEIGHT / typical**0.5) * namespace(h).sqrt(h) * (h / at_least(background, _SMALLEST_BACKGROUND))
