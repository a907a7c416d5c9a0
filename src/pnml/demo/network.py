"""The network of the demo: a ResNet-20 (He et al., 2016) for 32×32 images of ten classes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.functional import relu

if TYPE_CHECKING:
    from pathlib import Path


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Sequential()
        if inputs != width:
            self.shortcut.append(nn.Conv2d(inputs, width, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, inputs, H, W) to (N, width, H / stride, W / stride)."""
        branch = relu(self.bn1(self.conv1(x)))
        branch = self.bn2(self.conv2(branch))
        return relu(branch + self.shortcut(x))


class ResNet20(nn.Module):
    """A stem, three stages of three blocks, the mean over the pixels, and a linear layer.

    Args:
        mean: mean of each channel, for images in [0, 1].
        std: standard deviation of each channel, for images in [0, 1].

    >>> network = ResNet20((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)).eval()
    >>> network(network.normalise(torch.zeros(2, 3, 32, 32, dtype=torch.uint8))).shape
    torch.Size([2, 10])
    """

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.mean = torch.tensor(mean).view(3, 1, 1)
        self.std = torch.tensor(std).view(3, 1, 1)
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(Block(16, 16, 1), Block(16, 16, 1), Block(16, 16, 1))
        self.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1))
        self.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1))
        self.linear = nn.Linear(64, 10)

    def normalise(self, images: Tensor) -> Tensor:
        """Return uint8 images (N, 3, 32, 32) as the network takes them."""
        return (images / 255 - self.mean) / self.std

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, 10) of normalised images (N, 3, 32, 32)."""
        x = relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


def load_network(path: Path) -> tuple[ResNet20, dict[str, str]]:
    """Read the network, in evaluation mode, and the metadata of its training."""
    with safe_open(path, framework="pt") as file:
        metadata: dict[str, str] = file.metadata()
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    network = ResNet20(json.loads(metadata["mean"]), json.loads(metadata["std"]))
    network.load_state_dict(state)
    return network.eval(), metadata
