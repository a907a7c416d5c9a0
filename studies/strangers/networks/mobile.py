"""Networks that were made to be small."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, relu

from studies.strangers.networks.pieces import averaged, convolution, same_convolution, unit

if TYPE_CHECKING:
    from collections.abc import Callable


class Inverted(nn.Module):
    """Widen to ``inside`` channels, convolve each, perhaps weight them, and narrow; beside a shortcut where it fits."""

    def __init__(
        self,
        inputs: int,
        inside: int,
        outputs: int,
        stride: int = 1,
        *,
        unit: Callable[..., nn.Module],
        gate: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.expand = nn.Identity() if inside == inputs else unit(inputs, inside)
        self.depthwise = unit(inside, inside, 3, stride, groups=inside)
        self.gate = nn.Identity() if gate is None else gate
        self.project = unit(inside, outputs, act=None)
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.gate(self.depthwise(self.expand(x))))
        return x + y if self.has_shortcut else y


def alibaba() -> nn.Module:
    """Return the network that Alibaba's search found for MLPerf Tiny; its first convolution has a stride."""
    layer = partial(unit, act=nn.ReLU6, eps=1e-3)
    block = partial(Inverted, unit=layer)
    shapes = (8, 24, 16, 2), (16, 48, 16), (16, 48, 24, 2), (24, 96, 24), (24, 72, 48), (48, 144, 48), (48, 96, 112)
    blocks = nn.Sequential(*(block(*shape) for shape in shapes))
    stem = nn.Sequential(layer(3, 24, 3, 2), block(24, 24, 8))
    tail = nn.AdaptiveAvgPool2d(1), layer(448, 88, act=None), nn.Flatten(), nn.Linear(88, 10)
    return nn.Sequential(stem, blocks, layer(112, 448), *tail)


def titu() -> nn.Module:
    """Return the MobileNetV2 of titu1994, of Keras, 1.4 times as wide as usual and with ten blocks."""
    layer = partial(unit, act=nn.ReLU6, conv=same_convolution, eps=1e-3)
    blocks: list[nn.Module] = [Inverted(48, 48, 24, unit=layer)]
    inputs = 24
    for width, stride in ((32, 2), (32, 1), (48, 1), (48, 1), (48, 1), (88, 2), (88, 1), (88, 1), (88, 1)):
        blocks.append(Inverted(inputs, 6 * inputs, width, stride, unit=layer))
        inputs = width
    return nn.Sequential(layer(3, 48, 3), nn.Sequential(*blocks), layer(88, 1792), *averaged(1792))


class Gate(nn.Module):
    """Each channel times a weight that depends on the means of all channels."""

    def __init__(self, width: int, squeezed: int) -> None:
        super().__init__()
        narrow, widen = nn.Conv2d(width, squeezed, 1), nn.Conv2d(squeezed, width, 1)
        self.weights = nn.Sequential(nn.AdaptiveAvgPool2d(1), narrow, nn.SiLU(), widen, nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x * self.weights(x)
        return out


def osi_ai() -> nn.Module:
    """Return OSI AI's entry to the MicroNet Challenge, without its early exit: 64 % of the weights are zero."""
    layer = partial(unit, act=nn.SiLU, conv=same_convolution)
    blocks = []
    inputs, widen = 24, 1
    for width, stride in zip((16, 24, 40, 40, 48, 64, 64, 80, 80, 96), (1, 1, 2, 1, 1, 1, 1, 2, 1, 1), strict=True):
        inside = widen * inputs
        blocks.append(Inverted(inputs, inside, width, stride, unit=layer, gate=Gate(inside, inputs // 5)))
        inputs, widen = width, 6
    stem = nn.Upsample(63), layer(3, 24, 3, 2)
    return nn.Sequential(*stem, nn.Sequential(*blocks), layer(96, 136), *averaged(136, 100))


class Fire(nn.Module):
    """Narrow, then convolutions of 1×1 and 3×3 side by side."""

    def __init__(self, inputs: int, squeezed: int, width: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.small = nn.Conv2d(squeezed, width, 1)
        self.large = nn.Conv2d(squeezed, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.squeeze(x))
        return relu(torch.cat([self.small(x), self.large(x)], dim=1))


def faiz() -> nn.Module:
    """Return faizaladin's SqueezeNet, which enlarges images to 224 pixels, and whose head is a convolution."""
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 7, 2, 3), nn.ReLU()]
    inputs = 96
    for row in (((16, 64), (16, 64), (32, 128)), ((32, 128), (48, 192), (48, 192), (64, 256)), ((64, 256),)):
        layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        for squeezed, width in row:
            layers.append(Fire(inputs, squeezed, width))
            inputs = 2 * width
    enlarge = nn.Upsample((224, 224), mode="bilinear")
    head = nn.Dropout(0.5), nn.Conv2d(inputs, 10, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(enlarge, *layers, *head)


class Shuffled(nn.Module):
    """Convolutions in groups whose channels are mixed in between; what they make is added, or joined if it is new."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, groups: int = 3, first_groups: int = 3) -> None:
        super().__init__()
        self.adds = inputs == outputs
        inside, new = outputs // 4, outputs if self.adds else outputs - inputs
        self.first = nn.Conv2d(inputs, inside, 1, groups=first_groups, bias=False)
        self.bn1 = nn.BatchNorm2d(inside)
        self.shuffle = nn.ChannelShuffle(groups)
        self.depthwise = unit(inside, inside, 3, stride, groups=inside, act=None)
        self.last = unit(inside, new, groups=groups, act=None)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        y = self.last(self.depthwise(self.shuffle(relu(self.bn1(self.first(x))))))
        if self.adds:
            return relu(y + x)
        return relu(torch.cat([y, avg_pool2d(x, 2) if self.stride == 2 else x], dim=1))


def chenhang() -> nn.Module:
    """Return chenhang98's ShuffleNet, half as wide as usual, with three groups."""
    stages = [nn.Sequential(Shuffled(24, 120, first_groups=1), *(Shuffled(120, 120) for _ in range(3)))]
    for width, repeats in ((240, 7), (480, 3)):
        stages.append(nn.Sequential(Shuffled(width // 2, width, 2), *(Shuffled(width, width) for _ in range(repeats))))
    return nn.Sequential(convolution(3, 24), nn.BatchNorm2d(24), nn.ReLU(), *stages, *averaged(480))
