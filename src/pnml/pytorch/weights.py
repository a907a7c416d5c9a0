"""The weights of a model: a fingerprint of what training learns, and a cheap way to notice that they have moved."""

from __future__ import annotations

import hashlib
import warnings
from itertools import chain
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from pnml.pytorch.models import tree_of, unwrapped

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterator

Fingerprint = dict[str, str]
"""Digests of a model's weights: ``exact``, and rounded to the halves ``float16`` and ``bfloat16``."""

Relation = Literal["same", "rounded", "other"]

_HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
_version = attrgetter("_version")  # there is no public name for it


class ModelChangedWarning(UserWarning):
    """A guarded model has other weights than when its detector was fitted."""


def fingerprint(model: nn.Module, counters: Collection[str] = ()) -> Fingerprint:
    """Return digests of a model's weights: the names, shapes, types and values of its parameters and buffers.

    Buffers that a checkpoint leaves out are caches, and left out here. Device, mode, gradients and wrappers
    (``torch.compile``, parallel ones) make no difference. The digests of the weights rounded to half precision are for
    recognising them there.

    Args:
        model: a classifier.
        counters: names of buffers to leave out: those that the model writes into when it runs.

    >>> first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    >>> fingerprint(first) == fingerprint(second)
    False
    >>> _ = second.load_state_dict(first.state_dict())
    >>> fingerprint(first) == fingerprint(nn.DataParallel(second))
    True
    """
    halves = {name: digest(model, dtype, counters) for name, dtype in _HALVES.items()}
    return {"exact": digest(model, None, counters), **halves}


def digest(model: nn.Module, rounded: torch.dtype | None = None, counters: Collection[str] = ()) -> str:
    """Return one digest of a model's weights, those of floating point rounded to a type if one is given."""
    total = hashlib.sha256()
    for name, tensor in sorted(_named_weights(unwrapped(model))):
        if name in counters:
            continue
        weights = tensor.detach()
        if rounded is not None and weights.is_floating_point():
            weights = weights.to(rounded)
        total.update(f"{name} {weights.dtype} {tuple(weights.shape)}\n".encode())
        total.update(_content(weights))
    return total.hexdigest()


def relation(stored: Fingerprint, model: nn.Module, counters: Collection[str] = ()) -> Relation:
    """Return how a model's weights stand to those of a fingerprint; "same" if it is empty, of embeddings alone."""
    exact = digest(model, None, counters)
    if not stored or exact == stored["exact"]:
        return "same"
    if exact in stored.values():
        return "rounded"
    finer = (digest(model, dtype, counters) for dtype in (torch.float32, *_HALVES.values()))
    return "rounded" if stored["exact"] in finer else "other"


def refuse(path: str | os.PathLike[str], how: Relation) -> ValueError:
    """Return the error for a model whose weights are "rounded" ones of a fingerprint, or "other" ones."""
    if how == "rounded":
        return ValueError(
            f"{path} was fitted with these weights in another precision: fit again in the precision that you serve in, "
            "pnml.guard(model.bfloat16()).fit(train_loader), or load it into the model as it was then"
        )
    return ValueError(
        f"{path} was fitted with other weights than this model has, though the last layer is the same: fit again, or "
        "load the checkpoint it was fitted with. To use it all the same, load(path, check_model=False), or on the "
        "command line --no-check-model"
    )


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

    It compares which tensors the modules hold, where they lie and how often PyTorch changed them, and on the CPU one
    entry of the first and of the last, which shows changes that PyTorch does not count (``weight.data.copy_``), too.

    Args:
        model: as it was fitted.
        stored: its fingerprint; read of the model if left out.
        counters: names of buffers that are no weights.
    """

    def __init__(self, model: nn.Module, stored: Fingerprint | None = None, counters: Collection[str] = ()) -> None:
        self._model, self._counters = model, tuple(counters)
        self.stored = stored or fingerprint(model, counters)
        self._reported = ""
        self._versions: list[int] = []
        self._renew()

    def _renew(self) -> None:
        """Take the weights as they are now for unchanged."""
        model = unwrapped(self._model)
        named = [(name, weight) for name, weight in _named_weights(model) if name not in self._counters]
        held: list[Any] = [held for module in tree_of(model) for held in (module._modules, module._parameters)]  # noqa: SLF001
        if not self._counters:
            held += [module._buffers for module in tree_of(model)]  # noqa: SLF001
        self._held = [mapping for mapping in held if isinstance(mapping, dict) and mapping]
        self._values = self._now()
        self._weights = [weight for _, weight in named]
        self._versions, self._pointers = _versions(self._weights), _pointers(self._weights)
        plain = [weight.detach() for weight in self._weights if _is_plain(weight)]
        self._probes = [weight.view(-1)[weight.numel() // 2] for weight in (*plain[:1], *plain[-1:])]
        self._probed = [probe.item() for probe in self._probes]

    def _now(self) -> list[Any]:
        return list(chain.from_iterable(map(dict.values, self._held)))

    def has_moved(self) -> bool:
        """Return whether a module or a weight was replaced, changed or moved to another device."""
        now = self._now()
        if len(now) != len(self._values) or not all(map(is_, now, self._values)):
            return True
        if _versions(self._weights) != self._versions or _pointers(self._weights) != self._pointers:
            return True
        return [probe.item() for probe in self._probes] != self._probed

    def warn_if_changed(self, *, stacklevel: int) -> None:
        """Warn, once for every change, if the model has other weights than the fitted ones."""
        if not self.has_moved():
            return
        self._renew()
        exact = digest(self._model, None, self._counters)
        if exact in {self.stored["exact"], self._reported}:
            return
        self._reported = exact
        if relation(self.stored, self._model, self._counters) == "rounded":
            message = (
                "the model has the weights that the guard was fitted with in another precision: fit again as it is "
                "served, pnml.guard(model.bfloat16()).fit(train_loader)"
            )
        else:
            message = (
                "the model's weights have changed since the guard was fitted: its regrets, p-values and decisions are "
                "those of another model. Fit and calibrate again: guard.fit(train_loader).calibrate(val_loader)"
            )
        warnings.warn(message, ModelChangedWarning, stacklevel=stacklevel + 1)

    def __reduce__(self) -> Any:
        return _watch_of_copy, (self._model, self.stored, self._counters)


def _watch_of_copy(model: nn.Module, stored: Fingerprint, counters: tuple[str, ...]) -> WeightWatch:
    """Return a watch that does not know whether the weights are the fitted ones, and reads them at once."""
    watch = WeightWatch(model, stored, counters)
    watch._versions = []  # noqa: SLF001
    return watch


def _is_plain(weight: Tensor) -> bool:
    """Return whether a weight is an ordinary tensor of numbers on the CPU, which can be read without waiting."""
    is_number = weight.is_floating_point() and not weight.is_quantized and weight.layout == torch.strided
    return is_number and weight.is_cpu and weight.is_contiguous() and weight.numel() > 0


def _versions(weights: list[Tensor]) -> list[int]:
    try:
        return list(map(_version, weights))
    except (RuntimeError, NotImplementedError):  # one was made in inference mode, which counts nothing
        return [_place(weight)[1] for weight in weights]


def _pointers(weights: list[Tensor]) -> list[int]:
    try:
        return list(map(Tensor.data_ptr, weights))
    except (RuntimeError, NotImplementedError):  # one is spread over several devices
        return [_place(weight)[0] for weight in weights]


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
