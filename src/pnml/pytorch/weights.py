"""The weights of a model: a fingerprint of what training learns, and a cheap way to notice that they have moved."""

from __future__ import annotations

import hashlib
import math
import warnings
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pnml.pytorch.models import tree_of, unwrapped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

Fingerprint = dict[str, str]
"""A digest of a model's weights, ``exact``; empty of a detector that was fitted on embeddings alone."""

_version = attrgetter("_version")  # there is no public name for it
_WINDOW = 64  # modules and weights that a call looks at
_LAST = 4  # weights that every call looks at: a new head is the likeliest change


class ModelChangedWarning(UserWarning):
    """A guarded model has other weights than when its detector was fitted."""


def fingerprint(model: nn.Module, counters: Collection[str] = ()) -> Fingerprint:
    """Return a digest of a model's weights, by which a detector file knows it; see :func:`digest`.

    >>> first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    >>> fingerprint(first) == fingerprint(second)
    False
    >>> _ = second.load_state_dict(first.state_dict())
    >>> fingerprint(first) == fingerprint(nn.DataParallel(second))
    True
    """
    return {"exact": digest(model, counters)}


def digest(model: nn.Module, counters: Collection[str] = ()) -> str:
    """Return one digest of a model's weights: the names, shapes, types and values of its parameters and buffers.

    Buffers that a checkpoint leaves out are caches, and left out here. Device, mode, gradients and wrappers
    (``torch.compile``, parallel ones) make no difference.
    """
    total = hashlib.sha256()
    for name, tensor in sorted(_named_weights(unwrapped(model))):
        if name not in counters:
            total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            total.update(_content(tensor.detach()))
    return total.hexdigest()


def buffers_of(model: nn.Module) -> dict[str, tuple[Tensor, int]]:
    """Return the buffers of a model, and how often PyTorch has changed each."""
    named = _named_weights(unwrapped(model))
    return {name: (x, _place(x)[1]) for name, x in named if not isinstance(x, nn.Parameter)}


def counters_since(before: dict[str, tuple[Tensor, int]], model: nn.Module) -> tuple[str, ...]:
    """Return the names of the buffers that a model has written into, or replaced, since :func:`buffers_of`."""
    moved = []
    for name, (buffer, version) in buffers_of(model).items():
        if name in before and (before[name][0] is not buffer or before[name][1] != version):
            moved.append(name)
    return tuple(sorted(moved))


class WeightWatch:
    """Notices when the weights of a model may have changed, without reading them all, and then reads them and warns.

    It compares which tensors the modules hold, where they lie and how often PyTorch changed them, some of many with
    every call, and on the CPU one entry of the first and of the last, which shows changes that PyTorch does not count
    (``weight.data.copy_``), too.
    The fingerprint of the model is read if it is not ``stored``; ``counters`` are buffers that are no weights.
    """

    def __init__(self, model: nn.Module, stored: Fingerprint | None = None, counters: Collection[str] = ()) -> None:
        self._model = model
        self._counters = tuple(counters)
        self.stored = stored or fingerprint(model, counters)
        self._reported = ""
        self._renew()

    def _renew(self) -> None:
        """Take the weights as they are now for unchanged."""
        tables: list[Any] = []
        for module in tree_of(unwrapped(self._model)):
            tables += [module._modules, module._parameters]  # noqa: SLF001
            if not self._counters:
                tables.append(module._buffers)  # noqa: SLF001
        self._tables = [table for table in tables if isinstance(table, dict) and table]
        self._values = [list(table.values()) for table in self._tables]
        named = _named_weights(unwrapped(self._model))
        self._weights = [weight for name, weight in named if name not in self._counters]
        self._places = [_places(self._weights[start : start + _WINDOW]) for start in self._starts(self._weights)]
        self._last = _places(self._weights[-_LAST:])
        plain = [weight.detach() for weight in self._weights if _is_plain(weight)]
        self._probes = [weight.view(-1)[weight.numel() // 2] for weight in (*plain[:1], *plain[-1:])]
        self._numbers = list(map(Tensor.item, self._probes))
        self._turn = 0

    @staticmethod
    def _starts(entries: list[Any]) -> range:
        return range(0, max(1, len(entries)), _WINDOW)

    def has_moved(self, *, everywhere: bool = False) -> bool:
        """Return whether a module or a weight was replaced, changed or moved to another device.

        Of a large model a call looks at some of them, in turn with the next calls, and always at the last weights: what
        a call costs must not grow with the model.
        """
        turns = range(max(len(self._places), len(self._starts(self._tables))))
        if not everywhere:
            self._turn = (self._turn + 1) % len(turns)
            turns = range(self._turn, self._turn + 1)
        if any(map(self._has_moved_in, turns)) or _places(self._weights[-_LAST:]) != self._last:
            return True
        return list(map(Tensor.item, self._probes)) != self._numbers

    def _has_moved_in(self, turn: int) -> bool:
        window = slice(turn * _WINDOW, (turn + 1) * _WINDOW)
        for table, values in zip(self._tables[window], self._values[window], strict=True):
            if len(table) != len(values) or not all(map(is_, table.values(), values)):
                return True
        return turn < len(self._places) and _places(self._weights[window]) != self._places[turn]

    def warn_if_changed(self, *, stacklevel: int) -> None:
        """Warn, once for every change, if the model has other weights than the fitted ones."""
        if not self.has_moved(everywhere=True):
            return
        self._renew()
        exact = digest(self._model, self._counters)
        if exact in {self.stored["exact"], self._reported}:
            return
        self._reported = exact
        message = (
            "the model's weights have changed since the guard was fitted, or their precision has: its regrets, "
            "p-values and decisions are those of another model. Fit and calibrate again: "
            "guard.fit(train_loader).calibrate(val_loader)"
        )
        warnings.warn(message, ModelChangedWarning, stacklevel=stacklevel + 1)

    def __reduce__(self) -> Any:
        return _watch_of_copy, (self._model, self.stored, self._counters)


def _watch_of_copy(model: nn.Module, stored: Fingerprint, counters: tuple[str, ...]) -> WeightWatch:
    """Return a watch that does not know whether the weights are the fitted ones, and reads them at once."""
    watch = WeightWatch(model, stored, counters)
    watch._numbers = [math.nan]  # noqa: SLF001
    return watch


def _is_plain(weight: Tensor) -> bool:
    """Return whether a weight is an ordinary tensor of numbers on the CPU, which can be read without waiting."""
    is_number = weight.is_floating_point() and not weight.is_quantized and weight.layout == torch.strided
    return is_number and weight.is_cpu and weight.is_contiguous() and weight.numel() > 0


def _places(weights: list[Tensor]) -> list[int]:
    """Return where weights lie, and how often PyTorch changed each."""
    try:
        return [*map(Tensor.data_ptr, weights), *map(_version, weights)]
    except (RuntimeError, NotImplementedError):  # one is spread over devices, or was made in inference mode
        return [number for weight in weights for number in _place(weight)]


def _place(weight: Tensor) -> tuple[int, int]:
    try:
        return weight.data_ptr(), _version(weight)
    except (RuntimeError, NotImplementedError):
        return id(weight), 0


def _named_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the names of parameters and buffers, without those of compiled wrappers, and the weights."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        own = ".".join(part for part in prefix.split(".") if part != "_orig_mod")
        for name, weight in (*module._parameters.items(), *module._buffers.items()):  # noqa: SLF001
            if weight is not None and name not in module._non_persistent_buffers_set:  # noqa: SLF001
                yield f"{own}.{name}", weight


def _content(weight: Tensor) -> bytes | memoryview:
    """Return the values of a weight as bytes, none where it does not show them."""
    try:
        weight = weight.dequantize() if weight.is_quantized else weight
        weight = weight.to_dense() if weight.layout != torch.strided else weight
        return weight.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    except (RuntimeError, NotImplementedError, TypeError):  # on no device, or spread over several
        return b""
