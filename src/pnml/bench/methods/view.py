"""An image set as one network sees it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from pnml.bench.data import ImageSet
    from pnml.bench.zoo import Network

Track = Callable[[Iterable[Tensor], str, int], Iterable[Tensor]]
"""Passes batches on and shows how far it is: the batches, what is done with them, how many there will be."""

_T = TypeVar("_T")


class Outputs(NamedTuple):
    """What a network makes of n images: embeddings (n, M) and logits (n, C), on the network's device."""

    embeddings: Tensor
    logits: Tensor


class View:
    """A network's view of an image set: what several methods need of it is computed once and kept.

    Args:
        network: in evaluation mode, on the device to compute on.
        images: the set; its images go to that device as uint8 and are normalised there.
        batch_size: how many images go through the network at once.
        track: is shown every pass over the images, as for a progress bar.

    >>> from pnml.bench.data import load
    >>> from pnml.bench.zoo import create
    >>> view = View(create("resnet-20", 10).eval(), load("uniform", limit=3), batch_size=2)
    >>> view.embeddings.shape, view.logits.shape
    (torch.Size([3, 64]), torch.Size([3, 10]))
    """

    def __init__(self, network: Network, images: ImageSet, *, batch_size: int = 50, track: Track | None = None) -> None:
        if network.training:
            raise ValueError("the network is in training mode, in which its answers are random: call network.eval()")
        self.network = network
        self.images = images
        self.batch_size = batch_size
        self._track = track
        self._kept: dict[Hashable, object] = {}

    def __len__(self) -> int:
        return len(self.images)

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return self.network.head.weight.device

    def inputs(self, what: str) -> Iterator[Tensor]:
        """Yield the normalised images (B, 3, H, W) in order; ``what`` names the pass for whoever watches it."""
        batches: Iterable[Tensor] = self.images.batches(self.batch_size, self.device)
        if self._track is not None:
            count = -(-len(self) // self.batch_size)
            batches = self._track(batches, f"{self.images.name} {self.images.split}: {what}", count)
        # Float32 convolutions are faster channels last on a CPU, and channels first on a GPU.
        layout = torch.channels_last if self.device.type == "cpu" else torch.contiguous_format
        for batch in batches:
            yield self.network.normalise(batch).contiguous(memory_format=layout)

    @cached_property
    def outputs(self) -> Outputs:
        """Embeddings and logits of all images."""
        parts = []
        for x in self.inputs("embedding"):
            with torch.inference_mode():
                parts.append(run(self.network, x))
        return joined(parts)

    @property
    def embeddings(self) -> Tensor:
        """The embeddings, shape (n, M)."""
        return self.outputs.embeddings

    @property
    def logits(self) -> Tensor:
        """The logits, shape (n, C)."""
        return self.outputs.logits

    def once(self, key: Hashable, compute: Callable[[], _T]) -> _T:
        """Return what ``compute`` returned the first time it was asked for under this key."""
        if key not in self._kept:
            self._kept[key] = compute()
        return self._kept[key]  # type: ignore[return-value]  # one key, one type


def run(network: Network, x: Tensor) -> Outputs:
    """Give embeddings and logits of one batch of normalised images."""
    embeddings = network.features(x)
    return Outputs(embeddings, network.head(embeddings))


def joined(parts: Iterable[Outputs]) -> Outputs:
    """Put the outputs of several batches together."""
    embeddings, logits = zip(*parts, strict=True)
    return Outputs(torch.cat(embeddings), torch.cat(logits))
