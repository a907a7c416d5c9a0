"""Images changed to mislead a classifier: FGSM and PGD, to measure whether a score notices them.

Images are floats in [0, 1], shape (n, channels, height, width), and so are perturbations measured: every pixel moves by
at most ε, the L∞ ball, and stays in [0, 1]. The normalisation is therefore part of the model attacked:
:class:`TakingImages` puts a network of the zoo behind its own.

These are attackers that do not know about the detector. A score that notices them is no defence against one who does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pnml.pytorch.head import logits_of

if TYPE_CHECKING:
    from pnml.bench.zoo import Network


class TakingImages(nn.Module):
    """A network of the zoo that takes images in [0, 1] and normalises them itself.

    >>> from pnml.bench.zoo import create
    >>> TakingImages(create("resnet-20", 10).eval())(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.train(network.training)

    def forward(self, images: Tensor) -> Tensor:
        """Give the logits (n, C) of images (n, 3, H, W) in [0, 1]."""
        normalise = self.network.normalise
        logits: Tensor = self.network((images - normalise.mean) / normalise.std)
        return logits


def fgsm(model: nn.Module, images: Tensor, labels: Tensor, *, epsilon: float = 8 / 255) -> Tensor:
    """Give the images one step of ε up the gradient of the loss (Goodfellow et al., 2015), of the same shape.

    Args:
        model: in evaluation mode; images in [0, 1] in, logits out. Nothing in it is changed.
        images: floats in [0, 1], on the model's device.
        labels: the true classes, shape (n,).
        epsilon: how far each pixel may move.

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
    """Give the images after several steps of 2.5 ε / ``steps``, each drawn back into the ball (Madry et al., 2018).

    The first step starts from a random point of the ball. The images of the last step are given.

    Args:
        model: in evaluation mode; images in [0, 1] in, logits out. Nothing in it is changed.
        images: floats in [0, 1], on the model's device.
        labels: the true classes, shape (n,).
        epsilon: how far each pixel may move in all.
        steps: how often the gradient is taken.
        seed: of the random point.

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
    found = (images + epsilon * noise).clamp(0, 1)
    for _ in range(steps):
        found = _step(model, found, images, labels, size=2.5 * epsilon / steps, epsilon=epsilon)
    return found


def _step(model: nn.Module, current: Tensor, images: Tensor, labels: Tensor, *, size: float, epsilon: float) -> Tensor:
    """Move ``current`` by ``size`` along the sign of the gradient, then back to within ε of ``images`` and [0, 1]."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        x = current.detach().clone().requires_grad_()
        loss = cross_entropy(logits_of(model(x)), labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
    moved = current + size * gradient.sign()
    return torch.minimum(torch.maximum(moved, images - epsilon), images + epsilon).clamp(0, 1).detach()


def _check(model: nn.Module, images: Tensor, labels: Tensor, epsilon: float) -> None:
    if model.training:
        raise ValueError("the model is in training mode, in which its gradients are random: call model.eval()")
    if not images.is_floating_point():
        raise ValueError(f"images are {images.dtype}: expected floats in [0, 1], such as images / 255")
    if images.numel() and not (float(images.min()) >= 0 and float(images.max()) <= 1):
        raise ValueError(
            f"images lie in [{float(images.min())}, {float(images.max())}]: expected [0, 1], before any normalisation"
        )
    if labels.shape != images.shape[:1]:
        raise ValueError(f"labels have shape {tuple(labels.shape)}: expected one per image, shape ({len(images)},)")
    if not 0 < epsilon <= 1:
        raise ValueError(f"epsilon is {epsilon}: expected above 0 and at most 1, such as 8 / 255")
