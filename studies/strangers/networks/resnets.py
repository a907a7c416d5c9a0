"""ResNets of three stages, of 16, 32 and 64 channels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn.functional import pad, relu

from studies.strangers.networks.pieces import SameConv, convolution, unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from studies.strangers.networks.pieces import Convolution


class Subsampled(nn.Module):
    """Every other pixel, and as many channels of zeros as are there already: a shortcut without weights."""

    def forward(self, x: Tensor) -> Tensor:
        extra = x.shape[1] // 2
        return pad(x[:, :, ::2, ::2], (0, 0, 0, 0, extra, extra))


def projected(inputs: int, outputs: int) -> nn.Module:
    """Return a shortcut with a convolution and a batch norm."""
    return unit(inputs, outputs, stride=2, act=None)


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        conv: Convolution = convolution,
        shortcut: Callable[[int, int], nn.Module] = projected,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.conv1 = conv(inputs, outputs, 3, outputs // inputs)
        self.bn1 = nn.BatchNorm2d(outputs, eps=eps)
        self.conv2 = conv(outputs, outputs, 3)
        self.bn2 = nn.BatchNorm2d(outputs, eps=eps)
        self.downsample = nn.Identity() if inputs == outputs else shortcut(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
        return relu(y + self.downsample(x))


class ResNet(nn.Module):
    """A stem, ``3 * repeats`` blocks, and a linear head on the mean over pixels."""

    def __init__(
        self,
        repeats: int,
        classes: int = 10,
        block: Callable[[int, int], nn.Module] = Block,
        stem: nn.Module | None = None,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.conv1 = convolution(3, 16) if stem is None else stem
        self.bn1 = nn.BatchNorm2d(16, eps=eps)

        def stage(inputs: int, width: int) -> nn.Sequential:
            return nn.Sequential(block(inputs, width), *(block(width, width) for _ in range(repeats - 1)))

        self.layer1, self.layer2, self.layer3 = stage(16, 16), stage(16, 32), stage(32, 64)
        self.fc = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(relu(self.bn1(self.conv1(x))))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


class Separable(nn.Module):
    """A depthwise 3×3 convolution and one of 1×1."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.depthwise = convolution(inputs, inputs, kernel, stride, groups=inputs)
        self.pointwise = convolution(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.pointwise(self.depthwise(x))
        return out


def _keras_conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> SameConv:
    return SameConv(inputs, outputs, kernel, stride)


def _keras(repeats: int, classes: int) -> ResNet:
    block = partial(Block, conv=_keras_conv, shortcut=partial(SameConv, kernel_size=1, stride=2), eps=1e-3)
    return ResNet(repeats, classes, block, SameConv(3, 16, 3), eps=1e-3)


def akamaster() -> nn.Module:
    """Return akamaster's ResNet-56, with shortcuts without weights."""
    return ResNet(9, block=partial(Block, shortcut=lambda *_: Subsampled()))


def rohan() -> nn.Module:
    """Return the ResNet-20 of rohan-imtiaz, which learnt from a larger network."""
    return ResNet(3, 100)


def of_020118() -> nn.Module:
    """Return the ResNet-56 of 020118, whose first convolution has a bias before its batch norm."""
    return ResNet(9, 100, stem=nn.Conv2d(3, 16, 3, padding=1))


def stm() -> nn.Module:
    """Return the ResNet-32 of STMicroelectronics, of Keras: all convolutions have a bias, shortcuts no batch norm."""
    return _keras(5, 100)


def mlperf() -> nn.Module:
    """Return the ResNet-8 of MLPerf Tiny, of Keras, with one block in each stage; it takes pixels from 0 to 255."""
    return _keras(1, 10)


def gasoonjia() -> nn.Module:
    """Return Gasoonjia's ResNet-110, each of whose 3×3 convolutions is split in two."""
    return ResNet(18, block=partial(Block, conv=Separable))
