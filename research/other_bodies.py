"""Networks unlike those of the zoo, small enough to train in a minute: what comes before the head, and its width."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from pnml.bench.zoo import Network

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.bench.zoo.network import Tap


class Other(Network):
    """Any ``body`` that makes embeddings (N, width) of images, and a linear head."""

    def __init__(self, body: nn.Module, width: int, num_classes: int) -> None:
        super().__init__()
        self.body = body
        self.fc = nn.Linear(width, num_classes)
        self.initialise()

    def embed(self, x: Tensor, tap: Tap) -> Tensor:
        embeddings: Tensor = self.body(x)
        tap(embeddings)
        return embeddings


class Beside(nn.Module):
    """``x + inner(x)``, or ``shortcut(x) + inner(x)``."""

    def __init__(self, *inner: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = nn.Sequential(*inner)
        self.shortcut = nn.Identity() if shortcut is None else shortcut

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.shortcut(x) + self.inner(x)
        return out


class Mean(nn.Module):
    """The mean over ``dims``."""

    def __init__(self, *dims: int) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=self.dims)


class Attention(nn.Module):
    """Self-attention of tokens (N, T, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed: Tensor = self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return mixed


class Tokens(nn.Module):
    """Patches of 4×4 pixels as tokens (N, 64, width), each with what is learnt of its place.

    ``patch`` makes (N, width, 8, 8) of the images, by default with one convolution.
    """

    def __init__(self, width: int, patch: nn.Module | None = None) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4) if patch is None else patch
        self.place = nn.Parameter(0.02 * torch.randn(1, 64, width))

    def forward(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.patch(x).flatten(2).transpose(1, 2) + self.place
        return tokens


def mlp(width: int, inside: int) -> tuple[nn.Module, ...]:
    return nn.Linear(width, inside), nn.GELU(), nn.Linear(inside, width)


def convolution(inputs: int, outputs: int, size: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution that keeps the resolution, or divides it by ``stride``, and a batch norm."""
    return [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]


def vit(width: int = 192, depth: int = 9, heads: int = 3) -> nn.Module:
    """A vision transformer: mean of the tokens, then LayerNorm, so that all embeddings are about equally long."""
    layers: list[nn.Module] = [Tokens(width)]
    for _ in range(depth):
        layers.append(Beside(nn.LayerNorm(width), Attention(width, heads)))
        layers.append(Beside(nn.LayerNorm(width), *mlp(width, 4 * width)))
    return nn.Sequential(*layers, Mean(1), nn.LayerNorm(width))


def vgg() -> nn.Module:
    """VGG-13: no shortcuts, no average; a fully connected ReLU layer with dropout makes the embeddings."""
    layers: list[nn.Module] = []
    inputs = 3
    for width in (64, 128, 256, 512, 512):
        for _ in range(2):
            layers += [*convolution(inputs, width, 3), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 512), nn.ReLU(inplace=True), nn.Dropout(0.5))


def convmixer(width: int = 256, depth: int = 8, kernel: int = 5) -> nn.Module:
    """Depthwise and pointwise convolutions of patches, GELU before each batch norm: embeddings of either sign."""

    def after(conv: nn.Conv2d) -> tuple[nn.Module, ...]:
        return conv, nn.GELU(), nn.BatchNorm2d(width)

    layers = [*after(nn.Conv2d(3, width, 2, stride=2))]
    for _ in range(depth):
        layers.append(Beside(*after(nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width))))
        layers.extend(after(nn.Conv2d(width, width, 1)))
    return nn.Sequential(*layers, Mean(2, 3))


def mobile() -> nn.Module:
    """Inverted residuals with SiLU, then 1280 channels at once: embeddings much wider than what they are made of."""
    layers = [*convolution(3, 32, 3), nn.SiLU()]
    inputs = 32
    for expand, outputs, depth, first_stride in (
        (1, 24, 1, 1),
        (4, 40, 2, 2),
        (4, 80, 3, 2),
        (6, 112, 3, 1),
        (6, 160, 2, 2),
    ):
        for number in range(depth):
            stride, inside = first_stride if number == 0 else 1, expand * inputs
            block = [*convolution(inputs, inside), nn.SiLU()]
            block += [*convolution(inside, inside, 3, stride, inside), nn.SiLU(), *convolution(inside, outputs)]
            layers.append(Beside(*block) if stride == 1 and inputs == outputs else nn.Sequential(*block))
            inputs = outputs
    return nn.Sequential(*layers, *convolution(inputs, 1280), nn.SiLU(), Mean(2, 3), nn.Dropout(0.2))


BODIES: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "vit": (vit, 192),
    "vgg": (vgg, 512),
    "convmixer": (convmixer, 256),
    "mobile": (mobile, 1280),
}
