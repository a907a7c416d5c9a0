"""Find the last linear layer of any PyTorch classifier by running it and seeing whose output the logits are."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class HeadNotFoundError(ValueError):
    """No linear layer, or more than one, has the logits as its output."""


class Call(NamedTuple):
    """What passed through a linear layer when it was called."""

    embeddings: Tensor
    output: Tensor


def find_head(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *, named: str | None = None
) -> str:
    """Return the name of the ``nn.Linear`` whose output is what ``model(*args, **kwargs)`` returns as logits.

    Args:
        model: a classifier that gives one row of logits per sample.
        args: its positional arguments.
        kwargs: its keyword arguments.
        named: the layer to take, which is then only checked: it may be followed by an activation or a rescaling.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> find_head(model, (torch.zeros(5, 4),))
    '2'
    """
    layers = linear_layers(model)
    with ExitStack() as stack:
        watched = layers if named is None else {named: layers[named]}
        calls = {name: stack.enter_context(record_calls(layer)) for name, layer in watched.items()}
        stack.enter_context(unfused_attention())
        logits = logits_of(eager(model)(*args, **(kwargs or {})))
    if logits.ndim != 2:
        raise ValueError(f"one prediction per sample is expected, got logits of shape {tuple(logits.shape)}")
    if named is None:
        exact = [name for name in calls if any(call.output is logits for call in calls[name])]
        matches = exact or [name for name in calls if any(_same_values(call.output, logits) for call in calls[name])]
        trouble = "more than one linear layer has" if matches else "no linear layer has"
    else:
        matches = [named] if any(call.output.shape == logits.shape for call in calls[named]) else []
        trouble = f"{named!r} does not have"
    if len(matches) != 1:
        fitting = [name for name in matches or layers if layers[name].out_features == logits.shape[1]]
        raise HeadNotFoundError(
            f"{trouble} the model's logits, of shape {tuple(logits.shape)}, as its output. Name the last layer "
            f"yourself, pnml.guard(model, head='...'); the candidates are:\n{_described(layers, fitting)}"
        )
    (head,) = matches
    _check_affine(head, layers[head], calls[head][-1])
    return head


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Return every linear layer by its name in the model."""
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}


def arrays_of(layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """Return the weight (C, M) and the bias (C,) of a linear layer, zeros if it has none."""
    weight, bias = layer.weight.detach(), getattr(layer, "bias", None)
    return weight, weight.new_zeros(weight.shape[0]) if bias is None else bias.detach()


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside ``torch.compile`` and the parallel wrappers.

    Hooks do not reach into compiled code, and ``DistributedDataParallel`` may wait for the other ranks in a pass.
    """
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        elif isinstance(original := getattr(model, "_orig_mod", None), nn.Module):
            model = original
        else:
            return model


def eager(model: nn.Module) -> Callable[..., Any]:
    """Return what runs a model uncompiled, also after ``model.compile()``: compiled code skips new hooks."""
    if getattr(model, "_compiled_call_impl", None) is None:
        return model
    return model._call_impl  # noqa: SLF001 - there is no public way past it


class _Fusion:
    """Whether PyTorch may fuse the parts of a transformer: a switch of the process, shared by the threads."""

    lock = Lock()
    users = 0
    was_on = True


@contextmanager
def unfused_attention() -> Iterator[None]:
    """Let ``nn.TransformerEncoder`` call its parts one by one: it cannot fuse parts with hooks, and fails in trying."""
    with _Fusion.lock:
        if not _Fusion.users:
            _Fusion.was_on = torch.backends.mha.get_fastpath_enabled()
            torch.backends.mha.set_fastpath_enabled(value=False)
        _Fusion.users += 1
    try:
        yield
    finally:
        with _Fusion.lock:
            _Fusion.users -= 1
            if not _Fusion.users:
                torch.backends.mha.set_fastpath_enabled(value=_Fusion.was_on)


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
def record_calls(layer: nn.Module) -> Iterator[list[Call]]:
    """Note this thread's calls of ``layer`` on batches of rows while the context is open; then the hook is gone."""
    calls: list[Call] = []
    thread = get_ident()

    def note(_layer: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> None:
        if get_ident() == thread and output.ndim == 2:
            calls.append(Call(args[0] if args else kwargs["input"], output))

    handle = layer.register_forward_hook(note, with_kwargs=True)
    try:
        yield calls
    finally:
        handle.remove()


def _same_values(output: Tensor, logits: Tensor) -> bool:
    return (
        output.shape == logits.shape and output.device == logits.device and torch.equal(output.float(), logits.float())
    )


@torch.no_grad()
def _check_affine(name: str, layer: nn.Linear, call: Call) -> None:
    """Refuse a layer that computes anything else than weight · x + bias, a cosine classifier for instance."""
    plain, output = nn.functional.linear(call.embeddings, layer.weight, layer.bias).float(), call.output.float()
    slack = 0.01 * float(output.abs().nan_to_num().mean())
    if not torch.allclose(plain, output, rtol=0.01, atol=slack, equal_nan=True):
        raise HeadNotFoundError(
            f"the head {name!r}, a {type(layer).__name__}, does not compute weight · x + bias, which the regret needs"
        )


def _described(layers: dict[str, nn.Linear], fitting: list[str]) -> str:
    lines = [
        f"  {name}: {layers[name].in_features} features to {layers[name].out_features} outputs"
        for name in fitting or layers
    ]
    return "\n".join(lines) or "  none: the model has no nn.Linear"
