"""Networks whose layers see the outputs of all layers before them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from studies.strangers.networks.pieces import Join, averaged, convolution, unit


def eric() -> nn.Module:
    """Return Ericsciencer's DenseNet-BC, with 16 bottlenecks in each of three blocks."""
    layers: list[nn.Module] = [convolution(3, 24), nn.BatchNorm2d(24), nn.ReLU()]
    width = 24
    for block in range(3):
        if block:
            narrow = convolution(width, width // 2, 1)
            layers.append(nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), narrow, nn.AvgPool2d(2)))
            width //= 2
        dense: list[nn.Module] = []
        for _ in range(16):
            dense.append(Join(nn.BatchNorm2d(width), nn.ReLU(), *unit(width, 48), convolution(48, 12)))
            width += 12
        layers.append(nn.Sequential(*dense))
    return nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(), *averaged(width))


def titu() -> nn.Module:
    """Return the DenseNet-40 of titu1994, of Keras, without batch norms in its blocks; it takes pixels to 255."""
    layers: list[nn.Module] = [convolution(3, 16), nn.BatchNorm2d(16)]
    width = 16
    for block in range(3):
        if block:
            layers.append(nn.Sequential(convolution(width, width, 1), nn.AvgPool2d(2), nn.BatchNorm2d(width)))
        layers.append(nn.Sequential(*(Join(nn.ReLU(), convolution(width + 12 * i, 12)) for i in range(12))))
        width += 12 * 12
    return nn.Sequential(*layers, nn.ReLU(), *averaged(width))


class Chain(nn.Module):
    """The channels of ``x`` and of three steps of a chain of convolutions."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        half, quarter = growth // 2, growth // 4
        self.first = nn.Sequential(unit(inputs, half), unit(half, half, 3))
        self.second = unit(half, quarter, 3)
        self.third = unit(quarter, quarter, 3)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(first)
        return torch.cat([x, first, second, self.third(second)], dim=1)


def lmfrnet(growth: int = 24) -> nn.Module:
    """Return LMFRNet, of the repository of santosantonio1: what is joined are chains of narrow convolutions."""
    layers: list[nn.Module] = [nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())]
    width = 32
    for block, depth in enumerate((3, 4, 8, 3)):
        if block:
            layers.append(nn.AvgPool2d(2))
        layers.append(nn.Sequential(*(Chain(width + growth * i, growth) for i in range(depth))))
        width += growth * depth
        layers.append(unit(width, width))
    return nn.Sequential(*layers, *averaged(width))
