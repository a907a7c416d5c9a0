"""ResNets (He et al., 2016) for 32×32 images: a 3×3 stem and no max pooling."""

from __future__ import annotations

from torch import nn

from pnml_bench.zoo.resnet import BasicBlock, ResNet


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
