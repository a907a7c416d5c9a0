"""The outputs of a network on an image set."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from torch import Tensor

from pnml.pytorch.layers import find_layers
from pnml.pytorch.recording import join, record_layers

if TYPE_CHECKING:
    from pnml.pytorch.contract import Layer
    from pnml_bench.data import ImageSet
    from pnml_bench.zoo import Network

Track = Callable[[Iterable[Tensor], str, int], Iterable[Tensor]]
"""Reports progress: takes batches, a description and the number of batches, and returns the batches."""

_T = TypeVar("_T")

_FIRST = 4  # images that layers are found with


class Outputs(NamedTuple):
    """Embeddings (n, M) and logits (n, C) of n images, on the network's device."""

    embeddings: Tensor
    logits: Tensor


class View:
    """An image set together with a network; outputs that several methods need are computed once and cached.

    Args:
        network: in evaluation mode, on the device to compute on.
        images: the image set; images are moved to that device as uint8 and normalised there.
        batch_size: the number of images in a forward pass.
        track: called with every pass over the images, for example to show a progress bar.

    >>> from pnml_bench.data import load
    >>> from pnml_bench.zoo import create
    >>> view = View(create("resnet-20", 10).eval(), load("uniform", limit=3), batch_size=2)
    >>> view.embeddings.shape, view.logits.shape
    (torch.Size([3, 64]), torch.Size([3, 10]))
    >>> [features.shape[1] for features in view.features(view.layers)]  # means and maxima of channels
    [32, 64, 128, 128]
    """

    def __init__(self, network: Network, images: ImageSet, *, batch_size: int = 50, track: Track | None = None) -> None:
        if network.training:
            raise ValueError("expected a network in evaluation mode, got one in training mode: call network.eval()")
        self.network = network
        self.images = images
        self.batch_size = batch_size
        self._track = track
        self._cache: dict[Hashable, object] = {}

    def __len__(self) -> int:
        return len(self.images)

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return self.network.head.weight.device

    def inputs(self, what: str = "a method") -> Iterator[Tensor]:
        """Yield the normalised images (B, 3, H, W) in order; ``what`` describes the pass to ``track``."""
        batches: Iterable[Tensor] = self.images.batches(self.batch_size, self.device)
        if self._track is not None:
            count = -(-len(self) // self.batch_size)
            batches = self._track(batches, f"{self.images.name} {self.images.split}: {what}", count)
        # Float32 convolutions are faster with channels last on a CPU and with channels first on a GPU.
        layout = torch.channels_last if self.device.type == "cpu" else torch.contiguous_format
        for batch in batches:
            yield self.network.normalise(batch).contiguous(memory_format=layout)

    @cached_property
    def outputs(self) -> Outputs:
        """Embeddings and logits of all images."""
        outputs, _ = self._run(())
        return outputs

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers that a guard with ``layers="auto"`` would choose, found with the first images."""
        first = next(iter(self.images.batches(_FIRST, self.device)))
        with torch.inference_mode():
            return find_layers(self.network, (self.network.normalise(first),), head=self.network.head_name)

    def features(self, layers: tuple[Layer, ...]) -> list[Tensor]:
        """Return the pooled outputs of layers, each of shape (n, features of that layer), in float32.

        They are computed in the same pass as :attr:`outputs`, if those have not been computed before.
        """

        def compute() -> list[Tensor]:
            outputs, features = self._run(layers)
            self.__dict__.setdefault("outputs", outputs)
            return features

        return self.cached(("features", layers), compute)

    def _run(self, layers: tuple[Layer, ...]) -> tuple[Outputs, list[Tensor]]:
        """Run the network on all images; return its outputs, and the pooled outputs of layers."""
        parts, pooled = [], []
        for x in self.inputs("embedding"):
            with torch.inference_mode(), record_layers(self.network, layers) as recorded:
                parts.append(forward(self.network, x))
            assert not any(one is None for one in recorded)  # noqa: S101 - layers of the zoo are always called
            pooled.append([join(one).float() for one in recorded if one is not None])
        return concatenate(parts), [torch.cat(layer) for layer in zip(*pooled, strict=True)]

    @property
    def embeddings(self) -> Tensor:
        """The embeddings, shape (n, M)."""
        return self.outputs.embeddings

    @property
    def logits(self) -> Tensor:
        """The logits, shape (n, C)."""
        return self.outputs.logits

    @property
    def labels(self) -> Tensor | None:
        """The class numbers, shape (n,), where they are known."""
        labels = self.images.labels
        return None if labels is None else torch.from_numpy(labels).to(self.device)

    def first(self, count: int) -> View:
        """Return a view of the first ``count`` images."""
        labels = self.images.labels
        images = replace(
            self.images, images=self.images.images[:count], labels=None if labels is None else labels[:count]
        )
        return View(self.network, images, batch_size=self.batch_size)

    def cached(self, key: Hashable, compute: Callable[[], _T]) -> _T:
        """Return the cached value of ``key``; call ``compute`` for it the first time."""
        if key not in self._cache:
            self._cache[key] = compute()
        return self._cache[key]  # type: ignore[return-value]  # every key has values of one type


def forward(network: Network, x: Tensor) -> Outputs:
    """Return the outputs of one batch of normalised images."""
    embeddings = network.features(x)
    return Outputs(embeddings, network.head(embeddings))


def concatenate(parts: Iterable[Outputs]) -> Outputs:
    """Return the outputs of several batches as one."""
    embeddings, logits = zip(*parts, strict=True)
    return Outputs(torch.cat(embeddings), torch.cat(logits))
