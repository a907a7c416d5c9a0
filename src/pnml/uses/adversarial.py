"""Adversarial attacks FGSM and PGD, to measure whether a score detects their images.

Images are floats in [0, 1], shape (n, channels, height, width). Every pixel changes by at most ε (the L∞ ball) and
stays in [0, 1]. The normalisation is therefore part of the attacked model; :class:`NormalisingModel` adds it.

The attacks do not take the detector into account. A score that detects them is no defence against attacks that do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pnml.pytorch.models import logits_of

if TYPE_CHECKING:
    from collections.abc import Sequence


class NormalisingModel(nn.Module):
    """A model that takes images in [0, 1] and normalises them.

    Args:
        model: takes normalised images.
        mean: mean of each channel, for images in [0, 1].
        std: standard deviation of each channel.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).eval()
    >>> NormalisingModel(model, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))(torch.rand(4, 3, 2, 2)).shape
    torch.Size([4, 2])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.as_tensor(mean).reshape(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.as_tensor(std).reshape(-1, 1, 1), persistent=False)
        self.train(model.training)

    def forward(self, images: Tensor) -> Tensor:
        """Return what the model answers for images (n, channels, height, width) in [0, 1]."""
        logits: Tensor = self.model((images - self.mean) / self.std)
        return logits


def fgsm(model: nn.Module, images: Tensor, labels: Tensor, *, epsilon: float = 8 / 255) -> Tensor:
    """Return the images after one step of ε along the gradient sign of the loss (Goodfellow et al., 2015).

    Args:
        model: in evaluation mode; maps images in [0, 1] to logits. It is not modified.
        images: floats in [0, 1], on the model's device.
        labels: the true classes, shape (n,).
        epsilon: the largest change of a pixel.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval()
    >>> _ = nn.init.constant_(model[1].weight[0].data, 1.0), nn.init.constant_(model[1].weight[1].data, -1.0)
    >>> fgsm(model, torch.full((1, 1, 2, 2), 0.5), torch.tensor([0]), epsilon=0.25).flatten()
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    _check(model, images, labels, epsilon)
    return _step(model, images, images, labels, size=epsilon, epsilon=epsilon)


def pgd(
    model: nn.Module, images: Tensor, labels: Tensor, *, epsilon: float = 8 / 255, steps: int = 10, seed: int = 0
) -> Tensor:
    """Return the images after several steps of 2.5 ε / ``steps``, each projected onto the ball (Madry et al., 2018).

    The first step starts from a random point of the ball.

    Args:
        model: in evaluation mode; maps images in [0, 1] to logits. It is not modified.
        images: floats in [0, 1], on the model's device.
        labels: the true classes, shape (n,).
        epsilon: the largest change of a pixel.
        steps: the number of gradient steps.
        seed: of the random starting point.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval()
    >>> images = torch.rand(3, 1, 2, 2)
    >>> bool(((pgd(model, images, torch.tensor([0, 1, 1]), epsilon=0.1) - images).abs() <= 0.1 + 1e-6).all())
    True
    """
    _check(model, images, labels, epsilon)
    if steps < 1:
        raise ValueError(f"steps is {steps}: expected at least 1")
    generator = torch.Generator().manual_seed(seed)
    noise = 2 * torch.rand(images.shape, generator=generator, dtype=images.dtype).to(images.device) - 1
    attacked = (images + epsilon * noise).clamp(0, 1)
    for _ in range(steps):
        attacked = _step(model, attacked, images, labels, size=2.5 * epsilon / steps, epsilon=epsilon)
    return attacked


def _step(model: nn.Module, current: Tensor, images: Tensor, labels: Tensor, *, size: float, epsilon: float) -> Tensor:
    """Return ``current`` moved by ``size`` along the gradient sign, clipped to within ε of ``images`` and to [0, 1]."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        x = current.detach().clone().requires_grad_()
        loss = cross_entropy(logits_of(model(x)), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
    moved = current + size * gradient.sign()
    return torch.minimum(torch.maximum(moved, images - epsilon), images + epsilon).clamp(0, 1).detach()


def _check(model: nn.Module, images: Tensor, labels: Tensor, epsilon: float) -> None:
    if model.training:
        raise ValueError("expected a model in evaluation mode, got one in training mode: call model.eval()")
    if not images.is_floating_point():
        raise ValueError(f"images are {images.dtype}: expected floats in [0, 1], such as images / 255")
    if images.numel() and not (float(images.min()) >= 0 and float(images.max()) <= 1):
        raise ValueError(
            f"images are in [{float(images.min())}, {float(images.max())}]: expected [0, 1], before any normalisation"
        )
    if labels.shape != images.shape[:1]:
        raise ValueError(f"labels have shape {tuple(labels.shape)}: expected one per image, shape ({len(images)},)")
    if not 0 < epsilon <= 1:
        raise ValueError(f"epsilon is {epsilon}: expected above 0 and at most 1, such as 8 / 255")
