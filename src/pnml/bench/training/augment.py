"""Random shifts and flips of a batch of images, on its device."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Augmentation(NamedTuple):
    """For each of n images, ``shifts`` (n, 2), down and right in pixels, then ``flips`` (n,), bool."""

    shifts: Tensor
    flips: Tensor


def draw_augmentation(count: int, *, max_shift: int = 4, flip: bool, generator: torch.Generator) -> Augmentation:
    """Draw shifts of −``max_shift`` to ``max_shift`` pixels and, if ``flip``, flips with probability ½."""
    device = generator.device
    shifts = torch.randint(-max_shift, max_shift + 1, (count, 2), generator=generator, device=device)
    probability = 0.5 if flip else 0.0
    return Augmentation(shifts, torch.rand(count, generator=generator, device=device) < probability)


def shift_and_flip(images: Tensor, rows: Tensor, augmentation: Augmentation) -> Tensor:
    """Return the images ``rows`` (n,) of ``images`` (N, H, W, 3), augmented, with reflection at the border.

    Uses one gather and no padded copy.

    >>> images = torch.arange(4).view(1, 1, 4, 1).expand(1, 4, 4, 3)
    >>> augmentation = Augmentation(torch.tensor([[0, 1]]), torch.tensor([False]))
    >>> shift_and_flip(images, torch.tensor([0]), augmentation)[0, 0, :, 0]
    tensor([1, 0, 1, 2])
    """
    height, width = images.shape[1:3]
    down = _reflect(torch.arange(height, device=images.device) - augmentation.shifts[:, :1], height)
    right = _reflect(torch.arange(width, device=images.device) - augmentation.shifts[:, 1:], width)
    right = torch.where(augmentation.flips[:, None], right.flip(1), right)
    pixels = (rows[:, None, None] * height + down[:, :, None]) * width + right[:, None, :]
    return images.flatten(0, 2)[pixels]


def _reflect(positions: Tensor, length: int) -> Tensor:
    """Reflect positions outside [0, length) at the outermost pixels."""
    return length - 1 - (length - 1 - positions.abs()).abs()
