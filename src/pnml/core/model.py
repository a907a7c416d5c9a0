"""Everything that a regret is computed from, as one immutable object."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import DeviceConstants
from pnml.core.joined import Joined

if TYPE_CHECKING:
    from pnml.core.profile import Profile
    from pnml.core.subspace import Subspace

Matrix = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Layer:
    """The scatter of one layer of the training rows about the means of their classes.

    Attributes:
        start: the first column of the layer in a row.
        stop: the column after the last.
        means: of the classes, shape (C, M).
        subspace: the span of the rows about their means, ridge included.
        row_shares: how much farther a row is from the mean of its class without it, shape (C,).
    """

    start: int
    stop: int
    means: Matrix
    subspace: Subspace
    row_shares: Matrix


@dataclass(frozen=True, eq=False)
class Depth:
    """What the leverage takes from the classes, from the whole training set and from earlier layers.

    The leverage of a sample is ``0.3 √(h_e / typical) h_e / h_0``, and what the profile of its layers adds.

    Attributes:
        embedding: h_e is the leverage of the embedding about the mean of the predicted class.
        background: h_0 is that about the mean of all rows: one class.
        typical: the median of h_e over training rows, each left out.
        profile: what the leverages of the embedding, the background and the layers are compared with.
        layers: the scatters of earlier layers about the means of the classes.
    """

    embedding: Layer
    background: Layer
    typical: float
    profile: Profile
    layers: tuple[Layer, ...] = ()

    @property
    def scatters(self) -> tuple[Layer, ...]:
        """The embedding, the background and the layers."""
        return self.embedding, self.background, *self.layers


@dataclass(frozen=True, eq=False)
class ScoringModel:
    """A last layer, the geometry of its training embeddings, and how embeddings are scaled before the theorem.

    Attributes:
        weight: the last layer's weight, shape (C, M), float64.
        bias: its bias, shape (C,), float64.
        subspace: the span of the training embeddings, for the leverage of the paper; the leverage of ``depth``, where
            that is set, replaces it.
        unit_norm: whether embeddings are scaled to norm 1 (then multiplied by ``length``) or left as they are.
        length: the norm that embeddings get for the model's probabilities p.
        bias_scale: the factor of the bias for these p.
        label_noise: the share of labels assumed to be random; p becomes (1 − noise) p + noise / C.
        depth: what the leverage takes from classes and from earlier layers; None for the leverage of the paper.
    """

    weight: Matrix
    bias: Matrix
    subspace: Subspace
    unit_norm: bool = True
    length: float = 1.0
    bias_scale: float = 1.0
    label_noise: float = 0.0
    depth: Depth | None = None

    @property
    def n_classes(self) -> int:
        """The number C of classes."""
        return len(self.weight)

    @property
    def n_features(self) -> int:
        """The width M of an embedding."""
        return int(self.weight.shape[1])

    @property
    def row_width(self) -> int:
        """The width of a row: an embedding and the features of earlier layers."""
        return self.n_features if self.depth is None or not self.depth.layers else self.depth.layers[-1].stop

    @property
    def width(self) -> int:
        """How many numbers a row takes while it is scored: its features, or its logits if those are more."""
        return max(self.row_width, self.n_classes)

    @property
    def largest_regret(self) -> float:
        """Log C, the upper bound of every regret: that of an embedding without a direction."""
        return float(np.log(self.n_classes))

    @cached_property
    def centred_head(self) -> tuple[Matrix, Matrix]:
        """Transposed weight (M, C) and bias (C,) of the scaled logits, with mean 0 over the classes.

        Softmax ignores what all classes have in common, but its rounding errors would not.
        """
        weight, bias = self.weight * self.length, self.bias * self.bias_scale
        return np.ascontiguousarray((weight - weight.mean(axis=0)).T), bias - bias.mean()

    @cached_property
    def constants(self) -> DeviceConstants:
        """For arrays of any library: the centred head, then the whitening and the null space of the embedding.

        With ``depth``, instead of the latter, the means, the whitening and the shares of a row of each of its scatters,
        and the arrays of its profile.
        """
        if self.depth is None:
            return DeviceConstants(*self.centred_head, self.subspace.whitening, self.subspace.null_space)
        scatters = [(s.means, s.subspace.whitening, s.row_shares) for s in self.depth.scatters]
        arrays = (array for scatter in scatters for array in scatter)
        return DeviceConstants(*self.centred_head, *arrays, *self.depth.profile.arrays)

    @cached_property
    def joined(self) -> Joined | None:
        """The layers of ``depth`` side by side."""
        return None if self.depth is None else Joined(self.depth)

    @cached_property
    def head(self) -> DeviceConstants:
        """Transposed weight (M, C) and bias (C,) of the model's own logits, for arrays of any library."""
        return DeviceConstants(self.weight.T, self.bias)
