"""A PyTorch model as the guard runs it: out of its wrappers, in eval mode, without gradients, its answer as logits."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain
from operator import attrgetter, is_
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_is_training = attrgetter("training")


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


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model's first parameter, where its inputs go."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def tree_of(model: nn.Module) -> list[nn.Module]:
    """Return all modules of a model, itself first, as often as they are held."""
    modules = [model]
    for module in modules:  # which grows on the way
        children: list[Any] = list(module._modules.values())  # noqa: SLF001
        modules.extend(child for child in children if child is not None)
    return modules


def first_tensor(output: Any) -> Tensor | None:
    """Return the tensor that a module returned, or the first of a tuple, a dict or a Hugging Face output."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, dict):
        output = tuple(output.values())
    return first_tensor(output[0]) if isinstance(output, (tuple, list)) and output else None


def with_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Return a tensor changed, and tuples, lists and dicts with what they hold changed; anything else as it is."""
    return tree_map_only(Tensor, change, value)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Return a tensor, or those that tuples, lists and dicts hold, in their order."""
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))


def copied(value: Any) -> Any:
    """Return a tensor's copy, and tuples, lists and dicts with those of what they hold: a model may write into them."""
    return with_tensors(torch.clone, value)


def logits_of(output: Any) -> Tensor:
    """Take the logits from what a model returns: a tensor, a dict or a Hugging Face output with ``logits``."""
    if isinstance(output, Tensor):
        return output
    logits = output.get("logits") if isinstance(output, dict) else getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    if isinstance(output, dict):
        entries = {f"output[{key!r}]": x for key, x in output.items()}
    elif isinstance(output, (tuple, list)):
        entries = {f"output[{number}]": x for number, x in enumerate(output)}
    else:
        entries = {f"output.{name}": x for name, x in getattr(output, "__dict__", {}).items()}
    shapes = {name: tuple(x.shape) for name, x in entries.items() if isinstance(x, Tensor)}
    listed = " with " + ", ".join(f"{name} of shape {shape}" for name, shape in shapes.items()) if shapes else ""
    example = next((name for name, shape in shapes.items() if len(shape) == 2), next(iter(shapes), "output[0]"))
    raise TypeError(
        f"the model returned {type(output).__name__}{listed}: expected a tensor of logits, or "
        f"something that holds 'logits'. Take them out of it, pnml.guard(model, logits=lambda output: {example})"
    )


class _Users:
    """How many run a model in eval mode, and the modules that were in training mode before the first of them."""

    of_models: ClassVar[WeakKeyDictionary[nn.Module, _Users]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.lock = Lock()
        self.count = 0
        self.switched: list[nn.Module] = []


class EvalMode:
    """Eval mode of a model while anything runs it, from however many threads: first in switches, last out restores.

    A thread that restored the mode while another runs would have it write into the statistics of batch normalisation.

    >>> model = nn.Sequential(nn.ReLU())
    >>> mode = EvalMode(model)
    >>> len(mode.enter()), model.training, mode.leave(), model.training
    (2, False, None, True)
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._users = _Users.of_models.setdefault(unwrapped(model), _Users())
        self._modules: list[nn.Module] = []
        self._tables: list[dict[str, nn.Module | None]] = []
        self._children: list[nn.Module | None] = []

    def enter(self) -> list[nn.Module]:
        """Put all modules of the model into eval mode; return them, the same list as long as they are the same."""
        # To iterate in C takes a tenth of a walk over the modules.
        children = list(chain.from_iterable(map(dict.values, self._tables)))
        if len(children) != len(self._children) or not all(map(is_, children, self._children)) or not self._modules:
            self._modules = tree_of(self._model)
            every: list[Any] = [module._modules for module in self._modules]  # noqa: SLF001
            self._tables = [table for table in every if isinstance(table, dict) and table]  # scripted ones stay
            self._children = list(chain.from_iterable(map(dict.values, self._tables)))
        modules = self._modules
        users = self._users
        with users.lock:
            users.count += 1
            if any(map(_is_training, modules)):
                training = [module for module in modules if module.training]
                users.switched += training
                for module in training:
                    module.training = False
        return modules

    def leave(self) -> None:
        """Restore the mode of every module, if nobody else runs the model."""
        users = self._users
        with users.lock:
            users.count -= 1
            if not users.count:
                for module in users.switched:
                    module.training = True
                users.switched = []

    def __reduce__(self) -> tuple[type[EvalMode], tuple[nn.Module]]:
        return EvalMode, (self._model,)  # a copy of the model has a mode of its own


@contextmanager
def evaluating(model: nn.Module | None) -> Iterator[None]:
    """Keep a model, if there is one, in eval mode and record no gradients while the context is open."""
    mode = EvalMode(nn.Module() if model is None else model)
    mode.enter()
    try:
        with torch.no_grad():
            yield
    finally:
        mode.leave()


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
