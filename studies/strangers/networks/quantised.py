"""Networks whose weights and activations take few values; the conversion rounds the weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from studies.strangers.networks.pieces import SameConv
from studies.strangers.networks.resnets import Block, ResNet


class PowersConv(nn.Conv2d):
    """A convolution of inputs that are rounded to 0, 1/4, 1/2 or 1 times a learnt width."""

    width: Tensor

    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.register_buffer("width", torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        x = x / self.width
        levels = 0.25 * (x > 0.125) + 0.25 * (x > 0.375) + 0.5 * (x > 0.75)
        return super().forward(levels * self.width)


def apot() -> nn.Module:
    """Return yhhhli's ResNet-20 of 2 bits: all weights but the first and the last are -1, 0 or 1 times a number."""

    def shortcut(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(PowersConv(inputs, outputs, 1, 2), nn.BatchNorm2d(outputs))

    return ResNet(3, block=lambda inputs, outputs: Block(inputs, outputs, conv=PowersConv, shortcut=shortcut))


class RoundedReLU(nn.Module):
    """A ReLU onto the 256 numbers 0, 1/64, ..., 4 - 1/64."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 64).round().clamp(0, 255) / 64


class FlattenChannelsLast(nn.Flatten):
    """Flatten in the order of Keras, channels last."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1))


def hls4ml() -> nn.Module:
    """Return the 8-bit network of hls4ml for MLPerf Tiny, of Keras, its batch norms part of the convolutions."""
    layers: list[nn.Module] = []
    inputs = 3
    for width, kernel, stride in ((32, 1, 1), (4, 4, 1), (32, 4, 1), (32, 4, 4), (32, 4, 1)):
        layers += [SameConv(inputs, width, kernel, stride), RoundedReLU()]
        inputs = width
    return nn.Sequential(*layers, FlattenChannelsLast(), nn.Linear(2048, 10))
