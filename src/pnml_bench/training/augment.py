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


def shift_and_flip(images: Tensor, rows: Tensor, augmentation: Augmentation, *, black: bool = False) -> Tensor:
    """Return the images ``rows`` (n,) of ``images`` (N, H, W, 3), augmented, reflected or ``black`` beyond the border.

    Uses one gather and no padded copy.

    >>> images = torch.arange(4).view(1, 1, 4, 1).expand(1, 4, 4, 3)
    >>> augmentation = Augmentation(torch.tensor([[0, 1]]), torch.tensor([False]))
    >>> shift_and_flip(images, torch.tensor([0]), augmentation)[0, 0, :, 0]
    tensor([1, 0, 1, 2])
    >>> shift_and_flip(images, torch.tensor([0]), augmentation, black=True)[0, 0, :, 0]
    tensor([0, 0, 1, 2])
    """
    height, width = images.shape[1:3]
    down = torch.arange(height, device=images.device) - augmentation.shifts[:, :1]
    right = torch.arange(width, device=images.device) - augmentation.shifts[:, 1:]
    right = torch.where(augmentation.flips[:, None], right.flip(1), right)
    from_row, from_column = _reflect(down, height)[:, :, None], _reflect(right, width)[:, None, :]
    shifted = images.flatten(0, 2)[(rows[:, None, None] * height + from_row) * width + from_column]
    if not black:
        return shifted
    inside = (_is_within(down, height)[:, :, None] & _is_within(right, width)[:, None, :])[..., None]
    return shifted * inside


def _is_within(positions: Tensor, length: int) -> Tensor:
    return (positions >= 0) & (positions < length)


def _reflect(positions: Tensor, length: int) -> Tensor:
    """Reflect positions outside [0, length) at the outermost pixels."""
    return length - 1 - (length - 1 - positions.abs()).abs()
