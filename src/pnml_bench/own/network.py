"""Any PyTorch classifier in the place of a network of the zoo, and its outputs on a set of samples."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from pnml.pytorch.batches import inputs_of
from pnml.pytorch.guard import Guard
from pnml.pytorch.head import HeadNotFoundError
from pnml.pytorch.layers import LayersNotFoundError
from pnml.pytorch.models import logits_of
from pnml_bench.methods.view import Outputs, View
from pnml_bench.zoo import Network

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pnml.pytorch.batches import Arguments
    from pnml.pytorch.contract import Layer
    from pnml.pytorch.recording import Outputs as Pass
    from pnml_bench.data import ImageSet
    from pnml_bench.methods.view import Track
    from pnml_bench.own.samples import SampleSet
    from pnml_bench.zoo.network import Tap


class OwnNetwork(Network):
    """A classifier whose last layer, and earlier ones if they are wanted, are found with the first batch.

    What enters it is prepared already, so it has no normalisation of its own, and no taps.

    Args:
        model: any PyTorch classifier.
        head_layer: the name of its last layer, if it is not found by itself.
        with_layers: whether earlier layers are read, too.
        what: the samples, in the plural, for errors.

    >>> network = OwnNetwork(nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3)))
    >>> network.read(torch.zeros(5, 8)).embeddings.shape, network.head
    (torch.Size([5, 4]), Linear(in_features=4, out_features=3, bias=True))
    """

    def __init__(
        self, model: nn.Module, *, head_layer: str | None = None, with_layers: bool = False, what: str = "samples"
    ) -> None:
        nn.Module.__init__(self)
        self.model = model.eval()
        self.eval()
        self._guarded = Guard(self.model, head=head_layer, layers="auto" if with_layers else "last")
        self._what = what
        self.with_layers = with_layers
        self._head: nn.Linear | None = None

    @property
    def head(self) -> nn.Linear:
        """The last layer, from embeddings (n, M) to logits (n, C); known after the first batch."""
        if self._head is None:
            weight, bias = self._guarded.head
            self._head = linear_layer(full_precision(weight.detach()), full_precision(bias.detach()))
        return self._head

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The earlier layers that are read; known after the first batch."""
        return self._guarded.watched

    def get_submodule(self, target: str) -> nn.Module:
        """Return a layer by its name in the model."""
        return self.model.get_submodule(target)

    def forward(self, batch: Any) -> Tensor:
        """Return the model's own logits of what goes into it."""
        args, kwargs = self._arguments(batch)
        return logits_of(self.model(*args, **kwargs))

    def embed(self, x: Tensor, tap: Tap) -> Tensor:
        """Return the embeddings; there is nothing to tap."""
        del tap
        return self.read(x).embeddings

    def read(self, batch: Any) -> Pass:
        """Return embeddings, logits and features of one batch: a tensor, a tuple of inputs, or a dict of them.

        Raises:
            ValueError: the model fails on it, or its answer is not the logits of classes.
        """
        args, kwargs = self._arguments(batch)
        try:
            found = self._guarded.run(args, kwargs)
        except HeadNotFoundError as error:
            hint = "\nOn the command line: pnml bench --head-layer NAME" if ", head='" in str(error) else ""
            raise ValueError(f"{error}{hint}") from error
        except torch.OutOfMemoryError:
            raise
        except LayersNotFoundError as error:
            raise ValueError(f"{error}\nOn the command line: pnml bench --method pnml-last") from error
        except (RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"the network fails on a batch of {_shapes(args, kwargs)}: {error}") from error
        if found.places is not None:
            raise ValueError(
                f"the network has answers of shape {found.places}: expected one for each of the {self._what}"
            )
        return found._replace(embeddings=full_precision(found.embeddings), logits=full_precision(found.logits))

    def _arguments(self, batch: Any) -> Arguments:
        """Return the arguments of the model; a tuple has no labels in it, so that all of it are inputs."""
        return inputs_of(batch, self.model, (lambda inputs: inputs) if isinstance(batch, tuple) else None)


def full_precision(x: Tensor) -> Tensor:
    """Return numbers of half precision in float32, which methods compute in, and others as they are."""
    return x.float() if x.dtype in {torch.float16, torch.bfloat16} else x


def linear_layer(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return a linear layer of a weight (C, M) and a bias (C,), in evaluation mode."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta").to(weight.dtype)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    layer.bias = nn.Parameter(weight.new_zeros(len(weight)) if bias is None else bias, requires_grad=False)
    return layer.eval()


def _shapes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the shapes of the arguments of a model in words."""
    named = [("", x) for x in args] + [(f"{name} ", x) for name, x in kwargs.items()]
    shapes = [f"{name}{tuple(x.shape)}" if isinstance(x, Tensor) else f"{name}{type(x).__name__}" for name, x in named]
    return "shape " + ", ".join(shapes)


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
