"""Shifts and flips of many images at once, on the device they are on."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

REACH = 4  # pixels


class Moves(NamedTuple):
    """What happens to each of n images: ``shifts`` (n, 2), down and right in pixels, then ``flips`` (n,), bool."""

    shifts: Tensor
    flips: Tensor


def draw_moves(count: int, *, flip: bool, generator: torch.Generator) -> Moves:
    """Draw shifts of −4 to 4 pixels and, if ``flip``, a flip for every second image or so."""
    device = generator.device
    shifts = torch.randint(-REACH, REACH + 1, (count, 2), generator=generator, device=device)
    chance = 0.5 if flip else 0.0
    return Moves(shifts, torch.rand(count, generator=generator, device=device) < chance)


def shift_and_flip(images: Tensor, rows: Tensor, moves: Moves) -> Tensor:
    """Give the images ``rows`` (n,) of ``images`` (N, H, W, 3), moved; what comes in at the border is reflected.

    One gather, and no padded copy.

    >>> images = torch.arange(4).view(1, 1, 4, 1).expand(1, 4, 4, 3)
    >>> moves = Moves(torch.tensor([[0, 1]]), torch.tensor([False]))
    >>> shift_and_flip(images, torch.tensor([0]), moves)[0, 0, :, 0]
    tensor([1, 0, 1, 2])
    """
    height, width = images.shape[1:3]
    down = _reflect(torch.arange(height, device=images.device) - moves.shifts[:, :1], height)
    right = _reflect(torch.arange(width, device=images.device) - moves.shifts[:, 1:], width)
    right = torch.where(moves.flips[:, None], right.flip(1), right)
    pixels = (rows[:, None, None] * height + down[:, :, None]) * width + right[:, None, :]
    return images.flatten(0, 2)[pixels]


def _reflect(positions: Tensor, length: int) -> Tensor:
    """Fold positions that fall off [0, length) back, about the outermost pixels."""
    return length - 1 - (length - 1 - positions.abs()).abs()
