"""ResNets (He et al., 2016) for 32×32 images: a 3×3 stem, and no pooling before the last."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from pnml.bench.zoo.network import Network, Tap
from pnml.bench.zoo.residual import projection, residual


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut. Taps: conv1, relu(bn1), conv2, bn2, the shortcut, the output."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = projection(inputs, outputs, stride)

    def forward(self, x: Tensor, tap: Tap) -> Tensor:
        """Map (N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        return residual(x, ((self.conv1, self.bn1), (self.conv2, self.bn2)), self.shortcut, tap)


class ResNetCifar(Network):
    """One stage for each number in ``blocks``; each next stage doubles the channels and halves the resolution.

    By default ResNet-34: 512 features, 96 taps.

    >>> import torch
    >>> ResNetCifar(10, blocks=(3, 3, 3), width=16).features(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 64])
    """

    head_name = "linear"

    def __init__(self, num_classes: int, *, blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.stages = tuple(f"layer{number}" for number in range(1, len(blocks) + 1))
        inputs = width
        for number, (stage, depth) in enumerate(zip(self.stages, blocks, strict=True)):
            outputs, stride = width * 2**number, 1 if number == 0 else 2
            first = BasicBlock(inputs, outputs, stride)
            self.add_module(stage, nn.ModuleList([first, *(BasicBlock(outputs, outputs, 1) for _ in range(depth - 1))]))
            inputs = outputs
        self.linear = nn.Linear(inputs, num_classes)
        self.initialise()

    def embed(self, x: Tensor, tap: Tap) -> Tensor:
        """Compute the embeddings (N, width · 2^(stages − 1))."""
        x = relu(self.bn1(self.conv1(x)), inplace=True)
        for stage in self.stages:
            for block in self.get_submodule(stage).children():
                x = block(x, tap)
        return x.mean(dim=(2, 3))
