"""Outliers for fine-tuning: images of other sets, and transformed training images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pnml_bench.training.augment import draw_augmentation, shift_and_flip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Transformation = Callable[[Tensor, torch.Generator], Tensor]

TRANSFORMED = "transformed"  # names transformed training images in a list of outlier sets

_PATCHES = 4  # per side
_NOISE_STD = 96.0  # for values in [0, 255]


class Outliers:
    """A mixture of outliers that alternates between its sources.

    Args:
        sources: the images of each set, uint8 (N, S, S, 3); None for transformed training images.
        train_images: uint8 (N, S, S, 3), on the same device.
        digits: whether the training images show digits. Then outliers are not flipped, and the only transformation is
            shuffling patches, since a noisy, inverted or rotated digit can still be read.
        black_border: as in the recipe. Outliers have the borders of training images: a network that could tell them
            apart by these would take test images, which have none, for outliers.
    """

    def __init__(
        self, sources: Sequence[Tensor | None], train_images: Tensor, *, digits: bool, black_border: bool = False
    ) -> None:
        height, width = size = tuple(train_images.shape[1:3])
        for source in sources:
            if source is None and (height != width or height % _PATCHES):
                raise ValueError(
                    f"expected square training images with sides divisible by {_PATCHES}, got {height}×{width}"
                )
            if source is not None and source.shape[1:3] != size:
                got = "×".join(map(str, source.shape[1:3]))
                raise ValueError(
                    f"expected outliers of {height}×{width} pixels, got {got}: load them with size={height}"
                )
        self._sources = sources
        self._train_images = train_images
        self._flip = not digits
        self._black_border = black_border
        self._transformations = (shuffle_patches,) if digits else TRANSFORMATIONS

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw ``count`` outliers, uint8 (count, S, S, 3), augmented like training images."""
        drawn = self._train_images.new_empty((count, *self._train_images.shape[1:]))
        for position, source in enumerate(self._sources):
            share = drawn[position :: len(self._sources)]
            images = self._train_images if source is None else source
            rows = torch.randint(len(images), (len(share),), generator=generator, device=images.device)
            taken = images[rows] if source is not None else transform(images[rows], generator, self._transformations)
            augmentation = draw_augmentation(len(share), flip=self._flip, generator=generator)
            every = torch.arange(len(share), device=images.device)
            share.copy_(shift_and_flip(taken, every, augmentation, black=self._black_border))
        return drawn


def transform(images: Tensor, generator: torch.Generator, transformations: Sequence[Transformation]) -> Tensor:
    """Return images, uint8 (n, S, S, 3), each with one of the transformations, in turn.

    Noise is also an out-of-distribution set of the benchmark, so a network tuned with these has seen similar images.
    """
    transformed = images.clone()
    for position, function in enumerate(transformations):
        every = slice(position, None, len(transformations))
        transformed[every] = function(images[every], generator)
    return transformed


def shuffle_patches(images: Tensor, generator: torch.Generator) -> Tensor:
    """Shuffle the 4 × 4 patches of every image."""
    count, side = images.shape[:2]
    patch = side // _PATCHES
    grid = images.reshape(count, _PATCHES, patch, _PATCHES, patch, 3)
    patches = grid.transpose(2, 3).reshape(count, _PATCHES**2, -1)
    order = torch.rand(patches.shape[:2], generator=generator, device=images.device).argsort(dim=1)
    shuffled = patches.gather(1, order[:, :, None].expand_as(patches))
    return shuffled.reshape(count, _PATCHES, _PATCHES, patch, patch, 3).transpose(2, 3).reshape(images.shape)


def add_noise(images: Tensor, generator: torch.Generator) -> Tensor:
    """Add strong Gaussian noise to every channel value."""
    noise = torch.randn(images.shape, generator=generator, device=images.device)
    return _to_bytes(images + _NOISE_STD * noise)


def invert(images: Tensor, _generator: torch.Generator) -> Tensor:
    """Return the negatives."""
    return 255 - images


def rotate_and_recolour(images: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate by 90°, 180° or 270° in turn, and scale each channel by a random factor between ½ and 1½."""
    rotated = images.clone()
    for turns in (1, 2, 3):
        rotated[turns - 1 :: 3] = images[turns - 1 :: 3].rot90(turns, (1, 2))
    factors = 0.5 + torch.rand((len(images), 1, 1, 3), generator=generator, device=images.device)
    return _to_bytes(rotated * factors)


TRANSFORMATIONS: Sequence[Transformation] = (shuffle_patches, add_noise, invert, rotate_and_recolour)


def _to_bytes(values: Tensor) -> Tensor:
    return values.round().clamp(0, 255).to(torch.uint8)
