"""ResNets (He et al., 2016) for 224×224 images, with torchvision's parameter names."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from pnml.bench.zoo.network import Network, Tap
from pnml.bench.zoo.normalisation import IMAGENET
from pnml.bench.zoo.residual import projection, residual


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut. Taps: conv1, relu(bn1), conv2, bn2, the shortcut, the output."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = projection(inputs, width, stride)

    def forward(self, x: Tensor, tap: Tap) -> Tensor:
        """Map (N, inputs, H, W) to (N, width, H / stride, W / stride)."""
        return residual(x, ((self.conv1, self.bn1), (self.conv2, self.bn2)), self.downsample, tap)


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions beside a shortcut, the stride in the middle.

    Taps: conv1, relu(bn1), conv2, relu(bn2), conv3, bn3, the shortcut, the output.
    """

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = projection(inputs, outputs, stride)

    def forward(self, x: Tensor, tap: Tap) -> Tensor:
        """Map (N, inputs, H, W) to (N, 4 · width, H / stride, W / stride)."""
        steps = ((self.conv1, self.bn1), (self.conv2, self.bn2), (self.conv3, self.bn3))
        return residual(x, steps, self.downsample, tap)


class ResNetImageNet(Network):
    """Four stages of ``blocks``: by default ResNet-18 with 512 features and 48 taps.

    >>> import torch
    >>> ResNetImageNet(1000).features(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 512])
    """

    default_normalisation = IMAGENET

    def __init__(
        self,
        num_classes: int,
        *,
        block: type[BasicBlock | Bottleneck] = BasicBlock,
        blocks: tuple[int, int, int, int] = (2, 2, 2, 2),
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(block, 64, 64, blocks[0], 1)
        self.layer2 = _stage(block, 64 * block.expansion, 128, blocks[1], 2)
        self.layer3 = _stage(block, 128 * block.expansion, 256, blocks[2], 2)
        self.layer4 = _stage(block, 256 * block.expansion, 512, blocks[3], 2)
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        self.initialise()

    def embed(self, x: Tensor, tap: Tap) -> Tensor:
        """Compute the embeddings (N, 512 · expansion)."""
        x = relu(self.bn1(self.conv1(x)), inplace=True)
        x = max_pool2d(x, 3, stride=2, padding=1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            for block in stage:
                x = block(x, tap)
        return x.mean(dim=(2, 3))


def _stage(block: type[BasicBlock | Bottleneck], inputs: int, width: int, depth: int, stride: int) -> nn.ModuleList:
    outputs = width * block.expansion
    return nn.ModuleList([block(inputs, width, stride), *(block(outputs, width, 1) for _ in range(depth - 1))])
