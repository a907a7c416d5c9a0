"""ResNets (He et al., 2016): for 32×32 images, and for 224×224 with the parameter names of torchvision."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from pnml_bench.zoo.network import IMAGENET, Network, Tap

if TYPE_CHECKING:
    from collections.abc import Sequence


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut. Taps: conv1, relu(bn1), conv2, bn2, the shortcut, the output."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, shortcut_name: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut_name = shortcut_name
        self.add_module(shortcut_name, _projection(inputs, width, stride))

    def forward(self, x: Tensor, tap: Tap) -> Tensor:
        """Map (N, inputs, H, W) to (N, width, H / stride, W / stride)."""
        steps = ((self.conv1, self.bn1), (self.conv2, self.bn2))
        return _residual(x, steps, self.get_submodule(self.shortcut_name), tap)


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions and a shortcut; the 3×3 convolution has the stride.

    Taps: conv1, relu(bn1), conv2, relu(bn2), conv3, bn3, the shortcut, the output.
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, shortcut_name: str) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.shortcut_name = shortcut_name
        self.add_module(shortcut_name, _projection(inputs, outputs, stride))

    def forward(self, x: Tensor, tap: Tap) -> Tensor:
        """Map (N, inputs, H, W) to (N, 4 · width, H / stride, W / stride)."""
        steps = ((self.conv1, self.bn1), (self.conv2, self.bn2), (self.conv3, self.bn3))
        return _residual(x, steps, self.get_submodule(self.shortcut_name), tap)


class ResNet(Network):
    """A stem, stages of residual blocks and a linear head.

    Every stage after the first doubles the channels and halves the resolution.

    Args:
        num_classes: the number of classes.
        stem: the first convolution; its output channels are the width of the first stage.
        block: the type of residual block.
        blocks: the number of blocks of each stage.
    """

    shortcut_name: ClassVar[str]

    def __init__(
        self, num_classes: int, stem: nn.Conv2d, block: type[BasicBlock | Bottleneck], blocks: Sequence[int]
    ) -> None:
        super().__init__()
        self.conv1 = stem
        self.bn1 = nn.BatchNorm2d(stem.out_channels)
        self.stages = tuple(f"layer{number}" for number in range(1, len(blocks) + 1))
        inputs, width, stride = stem.out_channels, stem.out_channels, 1
        for stage, depth in zip(self.stages, blocks, strict=True):
            layers = nn.ModuleList()
            for _ in range(depth):
                layers.append(block(inputs, width, stride, self.shortcut_name))
                inputs, stride = width * block.expansion, 1
            self.add_module(stage, layers)
            width, stride = 2 * width, 2
        self.add_module(self.head_name, nn.Linear(inputs, num_classes))
        self.initialise()

    def stem(self, x: Tensor) -> Tensor:
        """Compute the input of the first stage."""
        return relu(self.bn1(self.conv1(x)), inplace=True)

    def embed(self, x: Tensor, tap: Tap) -> Tensor:
        """Compute the embeddings (N, M) of normalised images (N, 3, H, W)."""
        x = self.stem(x)
        for stage in self.stages:
            for block in self.get_submodule(stage).children():
                x = block(x, tap)
        return x.mean(dim=(2, 3))


class ResNetCifar(ResNet):
    """A ResNet with one stage per number in ``blocks``: by default ResNet-34 with 512 features and 96 taps.

    >>> import torch
    >>> ResNetCifar(10, blocks=(3, 3, 3), width=16).features(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 64])
    """

    head_name = "linear"
    shortcut_name = "shortcut"

    def __init__(self, num_classes: int, *, blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64) -> None:
        super().__init__(num_classes, nn.Conv2d(3, width, 3, padding=1, bias=False), BasicBlock, blocks)


class ResNetImageNet(ResNet):
    """A ResNet with four stages of ``blocks``: by default ResNet-18 with 512 features and 48 taps.

    >>> import torch
    >>> ResNetImageNet(1000).features(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 512])
    """

    shortcut_name = "downsample"
    default_normalisation = IMAGENET

    def __init__(
        self,
        num_classes: int,
        *,
        block: type[BasicBlock | Bottleneck] = BasicBlock,
        blocks: tuple[int, int, int, int] = (2, 2, 2, 2),
    ) -> None:
        super().__init__(num_classes, nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), block, blocks)

    def stem(self, x: Tensor) -> Tensor:
        """Compute the input of the first stage."""
        return max_pool2d(super().stem(x), 3, stride=2, padding=1)


def _residual(x: Tensor, steps: Sequence[tuple[nn.Conv2d, nn.BatchNorm2d]], shortcut: nn.Module, tap: Tap) -> Tensor:
    """Compute relu(steps(x) + shortcut(x)); a step is a convolution and a batch norm, with a relu between steps.

    Taps: every convolution, every step's output (after its relu, if any), the shortcut, the result. Only tensors that
    were not tapped are overwritten.
    """
    branch = x
    for number, (convolution, norm) in enumerate(steps, start=1):
        branch = convolution(branch)
        tap(branch)
        branch = norm(branch)
        if number < len(steps):
            branch = relu(branch, inplace=True)
        tap(branch)
    identity = shortcut(x)
    tap(identity)
    out = relu(branch + identity, inplace=True)
    tap(out)
    return out


def _projection(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Return the shortcut: the identity if the shape stays, else a 1×1 convolution and a batch norm."""
    if stride == 1 and inputs == outputs:
        return nn.Sequential()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
