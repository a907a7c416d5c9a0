"""Everything that a regret is computed from, as one immutable object."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import DeviceConstants

if TYPE_CHECKING:
    from pnml.core.subspace import Subspace

Matrix = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class ScoringModel:
    """A last layer, the geometry of its training embeddings, and how embeddings are scaled before the theorem.

    Attributes:
        weight: the last layer's weight, shape (C, M), float64.
        bias: its bias, shape (C,), float64.
        subspace: the span of the training embeddings.
        unit_norm: whether embeddings are scaled to norm 1 (then multiplied by ``length``) or left as they are.
        length: the norm that embeddings get for the model's probabilities p.
        bias_scale: the factor of the bias for these p.
        label_noise: the share of labels assumed to be random; p becomes (1 − noise) p + noise / C.
    """

    weight: Matrix
    bias: Matrix
    subspace: Subspace
    unit_norm: bool = True
    length: float = 1.0
    bias_scale: float = 1.0
    label_noise: float = 0.0

    @property
    def n_classes(self) -> int:
        """The number C of classes."""
        return len(self.weight)

    @property
    def n_features(self) -> int:
        """The width M of an embedding."""
        return int(self.weight.shape[1])

    @property
    def width(self) -> int:
        """How many numbers a row takes while it is scored: its features, or its logits if those are more."""
        return max(self.n_features, self.n_classes)

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
        """The centred head, the whitening and the null space, for arrays of any library."""
        return DeviceConstants(*self.centred_head, self.subspace.whitening, self.subspace.null_space)

    @cached_property
    def head(self) -> DeviceConstants:
        """Transposed weight (M, C) and bias (C,) of the model's own logits, for arrays of any library."""
        return DeviceConstants(self.weight.T, self.bias)
