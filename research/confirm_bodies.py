"""Networks to confirm the default on, unlike those before: what comes before the head, and its width."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from other_bodies import Attention, Beside, Mean, Tokens, convolution, mlp
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable


class Along(nn.Module):
    """``inner`` along axis 1, as if it were the last: across the tokens (N, T, M), or the channels (N, C, H, W)."""

    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*inner)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x.movedim(1, -1)).movedim(-1, 1)
        return out


class ClassToken(nn.Module):
    """One more token, the same for all images, before the others (N, T, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)


class First(nn.Module):
    """The first token (N, width)."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


class Excite(nn.Module):
    """Channels (N, width, H, W), each times a number in (0, 1) that follows from the means of all."""

    def __init__(self, width: int) -> None:
        super().__init__()
        squeezed = nn.Conv2d(width, width // 8, 1), nn.ReLU(inplace=True), nn.Conv2d(width // 8, width, 1)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), *squeezed, nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x * self.gate(x)
        return out


def plain() -> nn.Module:
    """Convolutions without any norm or shortcut; a fully connected tanh layer with dropout makes the embeddings."""
    layers: list[nn.Module] = []
    inputs = 3
    for width in (64, 128, 256):
        for _ in range(2):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.GELU()]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 4 * 4, 256), nn.Tanh(), nn.Dropout(0.5))


def mixer(width: int = 256, depth: int = 8) -> nn.Module:
    """MLP-Mixer: LayerNorm of each token, then their mean."""
    layers: list[nn.Module] = [Tokens(width)]
    for _ in range(depth):
        layers.append(Beside(nn.LayerNorm(width), Along(*mlp(64, 128))))
        layers.append(Beside(nn.LayerNorm(width), *mlp(width, 4 * width)))
    return nn.Sequential(*layers, nn.LayerNorm(width), Mean(1))


def convnext() -> nn.Module:
    """ConvNeXt: depthwise 7×7 convolutions and LayerNorm, the last of them after the mean."""
    layers: list[nn.Module] = []
    inputs = 3
    for width in (96, 192, 384):
        layers.append(nn.Conv2d(inputs, width, 2, stride=2))
        for _ in range(3):
            depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
            layers.append(Beside(depthwise, Along(nn.LayerNorm(width), *mlp(width, 4 * width))))
        layers.append(Along(nn.LayerNorm(width)))
        inputs = width
    return nn.Sequential(*layers, Mean(2, 3), nn.LayerNorm(inputs))


def vit_class(width: int = 192, depth: int = 7, heads: int = 3) -> nn.Module:
    """A vision transformer whose class token, after LayerNorm, is the embedding; convolutions make its patches."""
    half = width // 2
    patch = nn.Sequential(nn.Conv2d(3, half, 3, 2, 1), nn.GELU(), nn.Conv2d(half, width, 3, 2, 1))
    layers: list[nn.Module] = [Tokens(width, patch), ClassToken(width)]
    for _ in range(depth):
        layers.append(Beside(nn.LayerNorm(width), Attention(width, heads)))
        layers.append(Beside(nn.LayerNorm(width), *mlp(width, 4 * width)))
    return nn.Sequential(*layers, First(), nn.LayerNorm(width))


def residual(inputs: int, outputs: int, stride: int, *inner: nn.Module) -> list[nn.Module]:
    """``inner`` beside a shortcut, which is a convolution where the shape changes, then ReLU."""
    shortcut = None if inputs == outputs and stride == 1 else nn.Sequential(*convolution(inputs, outputs, 1, stride))
    return [Beside(*inner, shortcut=shortcut), nn.ReLU(inplace=True)]


def squeeze_excite() -> nn.Module:
    """A ResNet of 14 layers with squeeze and excitation at the end of each block."""
    layers: list[nn.Module] = [*convolution(3, 64, 3), nn.ReLU(inplace=True)]
    inputs = 64
    for width in (64, 128, 256):
        for number in range(2):
            stride = 2 if number == 0 and width > inputs else 1
            inner = [*convolution(inputs, width, 3, stride), nn.ReLU(inplace=True), *convolution(width, width, 3)]
            layers += residual(inputs, width, stride, *inner, Excite(width))
            inputs = width
    return nn.Sequential(*layers, Mean(2, 3))


def regnet() -> nn.Module:
    """Grouped convolutions, 32 channels a group; a linear layer leaves 64 numbers of either sign."""
    layers: list[nn.Module] = [*convolution(3, 32, 3), nn.ReLU(inplace=True)]
    inputs = 32
    for width, depth, first_stride in ((64, 1, 1), (128, 2, 2), (256, 4, 2), (512, 2, 2)):
        for number in range(depth):
            stride = first_stride if number == 0 else 1
            inner = [*convolution(inputs, width), nn.ReLU(inplace=True)]
            inner += [*convolution(width, width, 3, stride, width // 32), nn.ReLU(inplace=True)]
            layers += residual(inputs, width, stride, *inner, *convolution(width, width))
            inputs = width
    return nn.Sequential(*layers, Mean(2, 3), nn.Linear(inputs, 64))


def resnet9() -> nn.Module:
    """Eight convolutions with leaky ReLU, two shortcuts, and the maximum over all places instead of the mean."""

    def step(inputs: int, outputs: int) -> list[nn.Module]:
        return [*convolution(inputs, outputs, 3), nn.LeakyReLU(0.1, inplace=True)]

    layers: list[nn.Module] = [*step(3, 64), *step(64, 128), nn.MaxPool2d(2), Beside(*step(128, 128), *step(128, 128))]
    layers += [*step(128, 256), nn.MaxPool2d(2), *step(256, 512), nn.MaxPool2d(2)]
    layers.append(Beside(*step(512, 512), *step(512, 512)))
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten())


BODIES: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "plain": (plain, 256),
    "mixer": (mixer, 256),
    "convnext": (convnext, 384),
    "vit-class": (vit_class, 192),
    "seresnet-focal": (squeeze_excite, 256),
    "regnet": (regnet, 64),
    "resnet9": (resnet9, 512),
}
