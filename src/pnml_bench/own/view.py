"""One's own network on one's own samples."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from pnml_bench.methods.view import Outputs, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pnml.pytorch.contract import Layer
    from pnml_bench.data import ImageSet
    from pnml_bench.methods.view import Track
    from pnml_bench.own.network import OwnNetwork
    from pnml_bench.own.samples import SampleSet


class OwnView(View):
    """A set together with a network; embeddings, logits and features come from one pass.

    Args:
        network: any classifier.
        samples: pictures or texts.
        device: where the network is.
        batch_size: the number of samples in a forward pass.
        track: called with every pass over the samples.
    """

    network: OwnNetwork

    def __init__(
        self, network: OwnNetwork, samples: SampleSet, *, device: torch.device, batch_size: int, track: Track | None
    ) -> None:
        # It has what views and methods use of an image set: its length, name, split, labels and note.
        super().__init__(network, cast("ImageSet", samples), batch_size=batch_size, track=track)
        self._samples = samples
        self._device = device

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return self._device

    def inputs(self, what: str = "a method") -> Iterator[Any]:
        """Yield what goes into the network, in order; ``what`` describes the pass to the progress bar."""
        batches: Iterable[Any] = self._samples.batches(self.batch_size)
        if self._track is not None:
            count = -(-len(self) // self.batch_size)
            batches = self._track(batches, f"{self._samples.name} {self._samples.split}: {what}", count)
        reference = next((weight for weight in self.network.parameters() if weight.is_floating_point()), None)
        for batch in batches:
            if isinstance(batch, Tensor) and batch.is_floating_point() and reference is not None:
                yield batch.to(self.device, reference.dtype)
            else:
                yield batch.to(self.device) if isinstance(batch, Tensor) else batch

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers that a guard with ``layers="auto"`` would choose, found with the first batch."""
        if not self.network.with_layers:
            raise ValueError("earlier layers were not read: write needs_features = True into the class of the method")
        _ = self.outputs
        return self.network.layers

    def _run(self, layers: tuple[Layer, ...]) -> tuple[Outputs, list[Tensor]]:
        """Run the network on all samples; return its outputs, and the pooled outputs of its layers."""
        del layers  # the network knows them
        found = [self.network.read(batch) for batch in self.inputs("embedding")]
        outputs = Outputs(torch.cat([one.embeddings for one in found]), torch.cat([one.logits for one in found]))
        if len(outputs.logits) != len(self):
            raise ValueError(
                f"the network gives {len(outputs.logits):,} answers for {self._samples!r}: one each is expected"
            )
        features = [torch.cat(layer).float() for layer in zip(*(one.features for one in found), strict=True)]
        self._cache.setdefault(("features", self.network.layers), features)
        return outputs, features

    def first(self, count: int) -> OwnView:
        """Return a view of the first ``count`` samples."""
        samples = self._samples.first(count)
        return OwnView(self.network, samples, device=self._device, batch_size=self.batch_size, track=None)
