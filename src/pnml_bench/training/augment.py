"""Labelled images on a device: random shifts and flips of a batch, and a network's accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from pnml_bench.data import ImageSet
    from pnml_bench.zoo import Network


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


_BATCH = 1000


class Labelled(NamedTuple):
    """A whole set on a device: ``images`` (N, H, W, 3), uint8, and ``labels`` (N,), int64."""

    images: Tensor
    labels: Tensor


def to_device(image_set: ImageSet, device: torch.device) -> Tensor:
    """Return all images of a set, uint8 (N, H, W, 3), on ``device``."""
    return torch.from_numpy(np.array(image_set.images)).to(device)


def to_labelled(image_set: ImageSet, num_classes: int, device: torch.device) -> Labelled:
    """Return a set on ``device``; raise ``ValueError`` if its labels are not class numbers below ``num_classes``."""
    labels = image_set.labels
    if labels is None or len(labels) == 0:
        raise ValueError(f"expected a set with labels, got {image_set} without labels")
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"expected labels of {image_set.name!r} from 0 to {num_classes - 1}, got {labels.min()} to {labels.max()}"
        )
    return Labelled(to_device(image_set, device), torch.from_numpy(labels).to(device))


@torch.no_grad()
def accuracy(network: Network, data: Labelled, *, mixed_precision: bool = False) -> float:
    """Compute the accuracy in percent.

    Args:
        network: is put into evaluation mode.
        data: on the network's device.
        mixed_precision: use bfloat16 autocast instead of float32.
    """
    network.eval()
    device = data.labels.device
    correct = torch.zeros((), dtype=torch.int64, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed_precision):
        for images, labels in zip(torch.split(data.images, _BATCH), torch.split(data.labels, _BATCH), strict=True):
            logits = network(network.normalise(images.permute(0, 3, 1, 2)))
            correct += (logits.argmax(dim=1) == labels).sum()
    return 100 * correct.item() / len(data.labels)
