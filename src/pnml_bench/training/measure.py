"""Move labelled images to a device, and compute a network's accuracy on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from pnml_bench.data import ImageSet
    from pnml_bench.zoo import Network

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
