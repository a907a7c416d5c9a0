"""Wide residual networks (Zagoruyko and Komodakis, 2016) for 32×32 images."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import relu

from pnml_bench.zoo.network import Network, Tap


class BasicBlock(nn.Module):
    """Two 3×3 convolutions, each preceded by a batch norm and a relu, and a shortcut.

    Taps: conv1, relu(bn2), conv2, the shortcut, the output.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.convShortcut = None if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor, tap: Tap) -> Tensor:
        """Map (N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        active = relu(self.bn1(x), inplace=True)
        branch = self.conv1(active)
        tap(branch)
        branch = relu(self.bn2(branch), inplace=True)
        tap(branch)
        branch = self.conv2(self.dropout(branch))
        tap(branch)
        identity = x if self.convShortcut is None else self.convShortcut(active)
        tap(identity)
        out: Tensor = identity + branch
        tap(out)
        return out


class Stage(nn.Module):
    """A sequence of blocks, the first of which changes channels and resolution."""

    def __init__(self, inputs: int, outputs: int, depth: int, stride: int, dropout: float) -> None:
        super().__init__()
        first = BasicBlock(inputs, outputs, stride, dropout)
        self.layer = nn.ModuleList([first, *(BasicBlock(outputs, outputs, 1, dropout) for _ in range(depth - 1))])

    def forward(self, x: Tensor, tap: Tap) -> Tensor:
        """Map (N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        for layer in self.layer:
            x = layer(x, tap)
        return x


class WideResNet(Network):
    """A wide ResNet with 4 + 6 · ``depth`` layers, by default WideResNet-40-2: 128 features, 90 taps.

    ``dropout`` is applied between the two convolutions of a block, in training only.

    >>> import torch
    >>> WideResNet(10).features(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 128])
    """

    def __init__(self, num_classes: int, *, depth: int = 6, widen: int = 2, dropout: float = 0.3) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.block1 = Stage(16, 16 * widen, depth, 1, dropout)
        self.block2 = Stage(16 * widen, 32 * widen, depth, 2, dropout)
        self.block3 = Stage(32 * widen, 64 * widen, depth, 2, dropout)
        self.bn1 = nn.BatchNorm2d(64 * widen)
        self.fc = nn.Linear(64 * widen, num_classes)
        self.initialise()

    def embed(self, x: Tensor, tap: Tap) -> Tensor:
        """Compute the embeddings (N, 64 · widen)."""
        x = self.conv1(x)
        for stage in (self.block1, self.block2, self.block3):
            x = stage(x, tap)
        return relu(self.bn1(x), inplace=True).mean(dim=(2, 3))
