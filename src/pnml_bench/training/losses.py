"""Penalties on the logits of outliers, added to the cross entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Penalty(Protocol):
    """A term added to the cross entropy; ``name`` selects it in :func:`pnml_bench.training.recipe`."""

    name: ClassVar[str]

    def __call__(self, inlier_logits: Tensor, outlier_logits: Tensor, train_accuracy: float, /) -> Tensor:
        """Compute the term, a scalar.

        Args:
            inlier_logits: logits of training images, (n, C).
            outlier_logits: logits of outliers, (k, C).
            train_accuracy: of the network before tuning, between 0 and 1.
        """


@dataclass(frozen=True)
class EnergyMargins:
    """Squared hinge losses that separate the energies E = −logsumexp(logits) (Liu et al., 2020), in nats.

    weight · (mean relu(E_in − inside)² + mean relu(outside − E_out)²)

    Attributes:
        inside: no penalty for training images whose energy is below this.
        outside: no penalty for outliers whose energy is above this.
        weight: weight of the term relative to the cross entropy.

    >>> import torch
    >>> margins = EnergyMargins(inside=-23.0)
    >>> margins(torch.tensor([[25.0, 0.0]]), torch.tensor([[0.0, 0.0]]), 1.0)
    tensor(0.)
    >>> margins(torch.tensor([[13.0, -90.0]]), torch.tensor([[0.0, 0.0]]), 1.0)
    tensor(10.)
    """

    name: ClassVar[str] = "energy"

    inside: float
    outside: float = -5.0
    weight: float = 0.1

    def __call__(self, inlier_logits: Tensor, outlier_logits: Tensor, _train_accuracy: float, /) -> Tensor:
        """Compute the term for logits (n, C) of training images and (k, C) of outliers."""
        too_high = (-inlier_logits.logsumexp(dim=1) - self.inside).relu()
        too_low = (self.outside + outlier_logits.logsumexp(dim=1)).relu()
        return self.weight * (too_high.square().mean() + too_low.square().mean())


@dataclass(frozen=True)
class ConfidenceControl:
    """Confidence near the training accuracy, uniform predictions on outliers: OECC (Papadopoulos et al., 2021).

    confidence · (A − mean max p_in)² + uniformity · Σ |1/C − p_out|, where A is the training accuracy before tuning
    and the sum is over the classes and the outliers of a batch. The defaults are the authors' for CIFAR; their code
    instead sums the first square over images, with a fixed A near the test accuracy.

    Attributes:
        confidence: the paper's λ₁.
        uniformity: the paper's λ₂.

    >>> import torch
    >>> confident, uniform = torch.tensor([[90.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    >>> control = ConfidenceControl()
    >>> control(confident, uniform, 1.0), control(confident, confident, 1.0)
    (tensor(0.), tensor(0.0500))
    """

    name: ClassVar[str] = "oecc"

    confidence: float = 0.07
    uniformity: float = 0.05

    def __call__(self, inlier_logits: Tensor, outlier_logits: Tensor, train_accuracy: float, /) -> Tensor:
        """Compute the term for logits (n, C) of training images and (k, C) of outliers."""
        gap = train_accuracy - inlier_logits.softmax(dim=1).amax(dim=1).mean()
        variation = (1 / outlier_logits.shape[1] - outlier_logits.softmax(dim=1)).abs().sum()
        return self.confidence * gap.square() + self.uniformity * variation
