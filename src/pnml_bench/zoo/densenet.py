"""DenseNet-BC (Huang et al., 2017) for 32×32 images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, relu

from pnml_bench.zoo.network import Network, Tap

BLOCKS = 3


class Bottleneck(nn.Module):
    """A 1×1 and a 3×3 convolution whose ``growth`` channels are appended to the input. Taps: both convolutions."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor, tap: Tap) -> Tensor:
        """Map (N, channels, H, W) to (N, channels + growth, H, W)."""
        narrow = self.conv1(relu(self.bn1(x), inplace=True))
        tap(narrow)
        new = self.conv2(relu(self.bn2(narrow), inplace=True))
        tap(new)
        return torch.cat((x, new), dim=1)


class DenseBlock(nn.Module):
    """A sequence of bottlenecks at one resolution. Taps: those of its bottlenecks, then its output."""

    def __init__(self, channels: int, growth: int, depth: int) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Bottleneck(channels + i * growth, growth) for i in range(depth))

    def forward(self, x: Tensor, tap: Tap) -> Tensor:
        """Map (N, channels, H, W) to (N, channels + depth · growth, H, W)."""
        for layer in self.layer:
            x = layer(x, tap)
        tap(x)
        return x


class Transition(nn.Module):
    """Halves the channels and the resolution. Tap: the convolution, before pooling."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, channels // 2, 1, bias=False)

    def forward(self, x: Tensor, tap: Tap) -> Tensor:
        """Map (N, channels, H, W) to (N, channels / 2, H / 2, W / 2)."""
        x = self.conv1(relu(self.bn1(x), inplace=True))
        tap(x)
        return avg_pool2d(x, 2)


class DenseNet(Network):
    """DenseNet-BC with 4 + 6 · ``depth`` layers, by default 100 layers with growth 12: 342 features, 101 taps.

    >>> DenseNet(10).features(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 342])
    """

    def __init__(self, num_classes: int, *, depth: int = 16, growth: int = 12) -> None:
        super().__init__()
        channels = 2 * growth
        self.conv1 = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        for number in range(1, BLOCKS + 1):
            self.add_module(f"block{number}", DenseBlock(channels, growth, depth))
            channels += depth * growth
            if number < BLOCKS:
                self.add_module(f"trans{number}", Transition(channels))
                channels //= 2
        self.bn1 = nn.BatchNorm2d(channels)
        self.fc = nn.Linear(channels, num_classes)
        self.initialise()

    def embed(self, x: Tensor, tap: Tap) -> Tensor:
        """Compute the embeddings (N, 342)."""
        x = self.conv1(x)
        for number in range(1, BLOCKS + 1):
            x = self.get_submodule(f"block{number}")(x, tap)
            if number < BLOCKS:
                x = self.get_submodule(f"trans{number}")(x, tap)
        return relu(self.bn1(x), inplace=True).mean(dim=(2, 3))
