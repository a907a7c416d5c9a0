"""How many images a network classifies rightly."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from pnml.bench.data import ImageSet
    from pnml.bench.zoo import Network

_BATCH = 1000


class Labelled(NamedTuple):
    """A whole set on a device: ``images`` (N, H, W, 3), uint8, and ``labels`` (N,), int64."""

    images: Tensor
    labels: Tensor


def to_device(image_set: ImageSet, device: torch.device) -> Tensor:
    """Copy all images of a set, (N, H, W, 3), uint8, to the device."""
    return torch.from_numpy(np.array(image_set.images)).to(device)


def to_labelled(image_set: ImageSet, num_classes: int, device: torch.device) -> Labelled:
    """Copy a set with its labels to the device, after a look at them."""
    labels = image_set.labels
    if labels is None or len(labels) == 0:
        raise ValueError(f"training and testing need images with labels, and {image_set} has none")
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"labels of {image_set.name!r} run from {labels.min()} to {labels.max()}; "
            f"0 to {num_classes - 1} is expected for {num_classes} classes"
        )
    return Labelled(to_device(image_set, device), torch.from_numpy(labels).to(device))


@torch.no_grad()
def accuracy(network: Network, data: Labelled, *, mixed: bool = False) -> float:
    """Give the share of images that are classified rightly, in percent, with the network in evaluation mode.

    Args:
        network: is left in evaluation mode.
        data: on the network's device.
        mixed: bfloat16 where autocast allows it, instead of float32.
    """
    network.eval()
    device = data.labels.device
    right = torch.zeros((), dtype=torch.int64, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed):
        for images, labels in zip(torch.split(data.images, _BATCH), torch.split(data.labels, _BATCH), strict=True):
            logits = network(network.normalise(images.permute(0, 3, 1, 2)))
            right += (logits.argmax(dim=1) == labels).sum()
    return 100 * right.item() / len(data.labels)
