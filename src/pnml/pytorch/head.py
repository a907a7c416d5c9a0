"""Run a PyTorch classifier and see what passes through its layers, its logits last."""

from __future__ import annotations

from collections import UserDict
from contextlib import contextmanager
from copy import copy
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Note = Callable[..., None]

T = TypeVar("T")


class HeadNotFoundError(ValueError):
    """No linear layer, or more than one, is known to give the logits."""


class HeadWarning(UserWarning):
    """The model's answer is not the logits of its classes: what is taken for them is said."""


class Call(NamedTuple):
    """What passed through a layer when it was called."""

    embeddings: Tensor
    output: Tensor


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Return every linear layer by its name in the model."""
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}


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


def is_compiled(module: nn.Module) -> bool:
    """Return whether a module runs compiled code, by ``torch.compile(module)`` or ``module.compile()``."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def eager(model: nn.Module) -> Callable[..., Any]:
    """Return what runs a model uncompiled, also after ``model.compile()``: compiled code skips new hooks."""
    if getattr(model, "_compiled_call_impl", None) is None:
        return model
    return model._call_impl  # noqa: SLF001 - there is no public way past it


def run_on_copies(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a model makes of copies of its arguments: some write into them, and a second pass would differ."""
    return eager(model)(*copied(args), **copied(kwargs))


def attempt(run: Callable[[], T]) -> T | None:
    """Return what a trial run of a model gives; None where it fails, but for lack of memory or of a head."""
    try:
        return run()
    except (torch.OutOfMemoryError, HeadNotFoundError):
        raise
    except Exception:  # noqa: BLE001 - whatever a model raises
        return None


def copied(value: Any) -> Any:
    """Return a tensor's copy, and tuples, lists and dicts with those of what they hold; anything else as it is."""
    return with_tensors(torch.clone, value)


def with_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Return a tensor changed, and tuples, lists and dicts with what they hold changed; anything else as it is."""
    if isinstance(value, Tensor):
        return change(value)
    if type(value) in {list, tuple}:
        return type(value)(with_tensors(change, x) for x in value)
    return with_entries(value, {key: with_tensors(change, x) for key, x in value.items()}) if is_dict(value) else value


def is_dict(value: Any) -> bool:
    """Return whether a value is a dict, or a ``BatchEncoding`` of Hugging Face and the like."""
    return type(value) is dict or isinstance(value, UserDict)


def with_entries(value: Any, entries: dict[str, Any]) -> Any:
    """Return a dict of the kind of another one, with these entries."""
    if type(value) is dict:
        return entries
    changed = copy(value)
    changed.data = entries
    return changed


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield a tensor, or those that tuples, lists and dicts hold, in their order."""
    if isinstance(value, Tensor):
        yield value
    elif type(value) in {list, tuple} or is_dict(value):
        for x in value.values() if is_dict(value) else value:
            yield from tensors_in(x)


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
        held, example = _held(output)
        raise TypeError(
            f"the model returned {type(output).__name__}{held}: expected a tensor of logits, or something that holds "
            f"'logits'. Take them out of it, pnml.guard(model, logits=lambda output: {example})"
        )
    return logits


def _held(output: Any) -> tuple[str, str]:
    """Return the tensors that an output holds, in words, and how to take the likeliest one: the first of two axes."""
    if isinstance(output, dict):
        entries = {f"output[{key!r}]": x for key, x in output.items()}
    elif isinstance(output, (tuple, list)):
        entries = {f"output[{number}]": x for number, x in enumerate(output)}
    else:
        entries = {f"output.{name}": x for name, x in getattr(output, "__dict__", {}).items()}
    tensors = {name: tuple(x.shape) for name, x in entries.items() if isinstance(x, Tensor)}
    if not tensors:
        return "", "output[0]"
    held = ", ".join(f"{name} of shape {shape}" for name, shape in tensors.items())
    return f" with {held}", next((name for name, shape in tensors.items() if len(shape) == 2), next(iter(tensors)))


@contextmanager
def record_calls(
    layers: Mapping[str, nn.Module], keep: Callable[[Tensor], bool] | None = None
) -> Iterator[dict[str, list[Call]]]:
    """Note this thread's calls of layers by their names while the context is open; then the hooks are gone.

    Args:
        layers: each takes a tensor and returns one; other calls are passed over.
        keep: says of an output whether to note the call; all are noted when left out.
    """
    calls: dict[str, list[Call]] = {name: [] for name in layers}
    handles = []
    try:
        for name, layer in layers.items():
            note = in_this_thread(note_calls(calls[name], keep))
            handles.append(layer.register_forward_hook(note, with_kwargs=True))
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def note_calls(calls: list[Call], keep: Callable[[Tensor], bool] | None = None) -> Note:
    """Return a hook that adds the calls of a layer to a list; ``keep`` as in :func:`record_calls`."""

    def note(_layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        entered = args[0] if args else next(iter(kwargs.values()), None)
        if isinstance(entered, Tensor) and isinstance(output, Tensor) and (keep is None or keep(output)):
            calls.append(Call(entered, output))

    return note


def in_this_thread(note: Note) -> Note:
    """Return a hook that passes over the calls of other threads, in which the same model may run."""
    thread = get_ident()

    def hook(*call: Any) -> None:
        if get_ident() == thread:
            note(*call)

    return hook
