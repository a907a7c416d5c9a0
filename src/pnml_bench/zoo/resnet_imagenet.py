"""ResNets (He et al., 2016) for 224×224 images, with torchvision's parameter names."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from pnml_bench.zoo.normalisation import IMAGENET
from pnml_bench.zoo.resnet import BasicBlock, Bottleneck, ResNet


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
