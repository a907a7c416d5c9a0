"""Create a network by name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pnml_bench.zoo.densenet import DenseNet
from pnml_bench.zoo.resnet import Bottleneck, ResNetCifar, ResNetImageNet
from pnml_bench.zoo.vit import VisionTransformer
from pnml_bench.zoo.wide_resnet import WideResNet

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml_bench.zoo.network import Network

ARCHITECTURES: dict[str, Callable[[int], Network]] = {
    "densenet-bc-100": DenseNet,
    "resnet-34": ResNetCifar,
    "resnet-20": partial(ResNetCifar, blocks=(3, 3, 3), width=16),
    "wideresnet-40-2": WideResNet,
    "resnet-18-small": partial(ResNetCifar, blocks=(2, 2, 2, 2)),
    "vit-small": VisionTransformer,
    "resnet-18": ResNetImageNet,
    "resnet-101": partial(ResNetImageNet, block=Bottleneck, blocks=(3, 4, 23, 3)),
}


def create(architecture: str, num_classes: int) -> Network:
    """Return a network with random weights, in training mode.

    ``resnet-18`` and ``resnet-101`` are for 224×224 images, ``vit-small`` for 64×64, ``resnet-18-small``, with a 3×3
    stem and no max pooling, for 32×32 or 64×64, and the others for 32×32.

    >>> import torch
    >>> create("resnet-20", 10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    if architecture not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {architecture!r}: expected one of {', '.join(ARCHITECTURES)}")
    if num_classes < 1:
        raise ValueError(f"expected num_classes to be at least 1, got {num_classes}")
    network = ARCHITECTURES[architecture](num_classes)
    network.architecture = architecture
    return network
