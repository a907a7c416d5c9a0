"""Find the last linear layer of any PyTorch classifier by running it and seeing whose output the logits are."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class HeadNotFoundError(ValueError):
    """No linear layer, or more than one, has the logits as its output."""


@dataclass
class Seen:
    """What passed through a linear layer in one forward pass."""

    embeddings: Tensor | None = None
    output: Tensor | None = None


def find_head(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Give the name of the ``nn.Linear`` whose output is what ``model(*args, **kwargs)`` returns as logits.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> find_head(model, (torch.zeros(5, 4),), {})
    '2'
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    seen: dict[str, list[Seen]] = {name: [] for name in layers}

    def recorder(name: str) -> Callable[..., None]:
        return lambda _module, args, output: seen[name].append(Seen(args[0], output))

    handles = [layer.register_forward_hook(recorder(name)) for name, layer in layers.items()]
    try:
        logits = logits_of(model(*args, **kwargs))
    finally:
        for handle in handles:
            handle.remove()
    exact = [name for name, calls in seen.items() if any(call.output is logits for call in calls)]
    equal = [name for name, calls in seen.items() if any(_same_values(call.output, logits) for call in calls)]
    matches = exact or equal
    if len(matches) == 1:
        return matches[0]
    found = "more than one linear layer has" if matches else "no linear layer has"
    shapes = "\n".join(
        f"  {name}: {tuple(layers[name].weight.shape)[::-1]} features to outputs" for name in matches or layers
    )
    raise HeadNotFoundError(
        f"{found} the model's logits, of shape {tuple(logits.shape)}, as its output. Name the last layer yourself, "
        f"pnml.guard(model, head='...'); the candidates are:\n{shapes or '  none: the model has no nn.Linear'}"
    )


def logits_of(output: Any) -> Tensor:
    """Take the logits from what a model returns: a tensor, a dict or a Hugging Face output with ``logits``."""
    if isinstance(output, Tensor):
        return output
    logits = output.get("logits") if isinstance(output, dict) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor):
        raise TypeError(
            f"the model returned {type(output).__name__}: expected a tensor of logits, or something that holds 'logits'"
        )
    return logits


@contextmanager
def watching(layer: nn.Module) -> Iterator[Seen]:
    """Note the embeddings that enter ``layer`` while the context is open; the hook is gone afterwards."""
    seen = Seen()

    def note(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
        seen.embeddings = args[0]

    handle = layer.register_forward_pre_hook(note)
    try:
        yield seen
    finally:
        handle.remove()


def _same_values(output: Tensor | None, logits: Tensor) -> bool:
    return (
        output is not None
        and output.shape == logits.shape
        and output.device == logits.device
        and torch.equal(output.detach().float(), logits.detach().float())
    )
