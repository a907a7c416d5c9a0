"""Any PyTorch classifier in the place of a network of the zoo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pnml.pytorch.batches import inputs_of
from pnml.pytorch.guard import Guard
from pnml.pytorch.head import HeadNotFoundError
from pnml.pytorch.layers import LayersNotFoundError
from pnml.pytorch.models import logits_of
from pnml_bench.zoo import Network

if TYPE_CHECKING:
    from pnml.pytorch.batches import Arguments
    from pnml.pytorch.contract import Layer
    from pnml.pytorch.recording import Outputs
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

    def read(self, batch: Any) -> Outputs:
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
