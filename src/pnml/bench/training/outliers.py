"""Images that the network shall learn to distrust: other sets, and training images made strange."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pnml.bench.training.augment import draw_moves, shift_and_flip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Change = Callable[[Tensor, torch.Generator], Tensor]

TRANSFORMED = "transformed"  # stands for training images made strange, in a list of outlier sets

_PATCHES = 4  # a side
_NOISE = 96.0  # standard deviation, of 255


class Outliers:
    """A mixture that takes from each source in turn.

    Args:
        sources: images (N, S, S, 3), uint8, of each set; None stands for transformed training images.
        train_images: (N, S, S, 3), uint8, on the same device.
        digits: whether the training images show digits: then outliers are no more flipped than they are, and the only
            change that makes a digit strange is shuffling its patches; noisy, inverted or turned, it can still be read.
    """

    def __init__(self, sources: Sequence[Tensor | None], train_images: Tensor, *, digits: bool) -> None:
        height, width = size = tuple(train_images.shape[1:3])
        for source in sources:
            if source is None and (height != width or height % _PATCHES):
                raise ValueError(
                    f"transformed outliers need square images with sides divisible by {_PATCHES}, got {height}×{width}"
                )
            if source is not None and source.shape[1:3] != size:
                got = "×".join(map(str, source.shape[1:3]))
                raise ValueError(f"outliers are {got} pixels but training images {height}×{width}: load them resized")
        self._sources = sources
        self._train_images = train_images
        self._flip, self._changes = not digits, (shuffle_patches,) if digits else CHANGES

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw ``count`` outliers, (count, S, S, 3), uint8, shifted and flipped like training images."""
        drawn = self._train_images.new_empty((count, *self._train_images.shape[1:]))
        for place, source in enumerate(self._sources):
            share = drawn[place :: len(self._sources)]
            images = self._train_images if source is None else source
            rows = torch.randint(len(images), (len(share),), generator=generator, device=images.device)
            moved = shift_and_flip(images, rows, draw_moves(len(share), flip=self._flip, generator=generator))
            share.copy_(transform(moved, generator, self._changes) if source is None else moved)
        return drawn


def transform(images: Tensor, generator: torch.Generator, changes: Sequence[Change]) -> Tensor:
    """Make images (n, S, S, 3), uint8, strange, by each of the changes in turn.

    Noise is also an out-of-distribution set of the benchmark: to a network tuned against these it is no longer new.
    """
    strange = images.clone()
    for place, change in enumerate(changes):
        strange[place :: len(changes)] = change(images[place :: len(changes)], generator)
    return strange


def shuffle_patches(images: Tensor, generator: torch.Generator) -> Tensor:
    """Cut every image into 4 × 4 patches and put them back in random order."""
    count, side = images.shape[:2]
    patch = side // _PATCHES
    grid = images.reshape(count, _PATCHES, patch, _PATCHES, patch, 3)
    patches = grid.transpose(2, 3).reshape(count, _PATCHES**2, -1)
    order = torch.rand(patches.shape[:2], generator=generator, device=images.device).argsort(dim=1)
    mixed = patches.gather(1, order[:, :, None].expand_as(patches))
    return mixed.reshape(count, _PATCHES, _PATCHES, patch, patch, 3).transpose(2, 3).reshape(images.shape)


def add_noise(images: Tensor, generator: torch.Generator) -> Tensor:
    """Add strong Gaussian noise to every colour value."""
    noise = torch.randn(images.shape, generator=generator, device=images.device)
    return _to_bytes(images + _NOISE * noise)


def invert(images: Tensor, _generator: torch.Generator) -> Tensor:
    """Give the negatives."""
    return 255 - images


def turn_and_recolour(images: Tensor, generator: torch.Generator) -> Tensor:
    """Turn by one, two or three quarters, in turn, and scale each colour by its own random factor of ½ to 1½."""
    turned = images.clone()
    for quarters in (1, 2, 3):
        turned[quarters - 1 :: 3] = images[quarters - 1 :: 3].rot90(quarters, (1, 2))
    factors = 0.5 + torch.rand((len(images), 1, 1, 3), generator=generator, device=images.device)
    return _to_bytes(turned * factors)


CHANGES: Sequence[Change] = (shuffle_patches, add_noise, invert, turn_and_recolour)


def _to_bytes(values: Tensor) -> Tensor:
    return values.round().clamp(0, 255).to(torch.uint8)
