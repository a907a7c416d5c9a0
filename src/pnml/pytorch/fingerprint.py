"""The weights of a model: a fingerprint of them, and a cheap way to notice that they have moved."""

from __future__ import annotations

import hashlib
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pnml.pytorch.head import unwrapped
from pnml.pytorch.module_tree import Held

if TYPE_CHECKING:
    from collections.abc import Iterator

Fingerprint = dict[str, str]
"""Digests of a model's weights: ``exact``, and rounded to the halves ``float16`` and ``bfloat16``."""

_HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
_version = attrgetter("_version")  # there is no public name for it
_PROBED = 32  # weights of which one entry is looked at before every call


def fingerprint(model: nn.Module) -> Fingerprint:
    """Return digests of a model's weights: the names, shapes, types and values of its parameters and buffers.

    Buffers that a checkpoint leaves out are caches, and left out here. Device, mode, gradients and wrappers
    (``torch.compile``, parallel ones) make no difference. The digests of the weights rounded to half precision are for
    recognising them there.

    >>> first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    >>> fingerprint(first) == fingerprint(second)
    False
    >>> _ = second.load_state_dict(first.state_dict())
    >>> fingerprint(first) == fingerprint(nn.DataParallel(second))
    True
    """
    return {"exact": digest(model), **{name: digest(model, dtype) for name, dtype in _HALVES.items()}}


def digest(model: nn.Module, rounded: torch.dtype | None = None) -> str:
    """Return one digest of a model's weights, those of floating point rounded to a type if one is given."""
    found = hashlib.sha256()
    for name, tensor in sorted(_named_weights(unwrapped(model))):
        weights = tensor.detach()
        if rounded is not None and weights.is_floating_point():
            weights = weights.to(rounded)
        found.update(f"{name} {weights.dtype} {tuple(weights.shape)}\n".encode())
        found.update(_content(weights))
    return found.hexdigest()


def same_but_rounded(kept: Fingerprint, model: nn.Module) -> bool:
    """Return whether a model has the weights of a fingerprint in lower or in higher precision."""
    if digest(model) in kept.values():
        return True
    return any(digest(model, dtype) == kept["exact"] for dtype in (torch.float32, *_HALVES.values()))


class WeightWatch:
    """Notices when the weights of a model may have changed, without reading them all.

    It compares where every weight lies and how often PyTorch changed it, and one entry of some of them, which shows
    changes that PyTorch does not count (``weight.data.copy_``), too, but on a GPU, where to look at an entry is to wait
    for it. The modules come from a :class:`~pnml.pytorch.module_tree.ModuleTree`, which knows whether they are still
    the same. A copy knows nothing, and sees a change at once.

    >>> modules = [nn.Linear(2, 2)]
    >>> watch = WeightWatch()
    >>> watch.renew(modules), watch.has_moved(modules)
    (None, False)
    >>> _ = modules[0].weight.data.mul_(2)
    >>> watch.has_moved(modules)
    True
    """

    def __init__(self) -> None:
        self._modules: list[nn.Module] = []
        self._held = Held()
        self._weights: list[Tensor] = []
        self._places: tuple[list[int], list[int]] = [], []
        self._probe: list[Tensor] = []
        self._seen = torch.empty(0)

    def renew(self, modules: list[nn.Module]) -> None:
        """Take the weights of all modules of a model as they are now for unchanged."""
        self._modules = modules
        self._held = Held(own for module in modules for own in (module._parameters, module._buffers))  # noqa: SLF001
        self._weights = [weight for module in modules for _, weight in _own_weights(module)]
        self._places = _places(self._weights)
        weights = [weight.detach() for weight in self._weights if _is_plain(weight)]
        self._probe = [_one_entry(weight) for weight in _some([weight for weight in weights if weight.is_cpu])]
        self._seen = self._read()

    def has_moved(self, modules: list[nn.Module]) -> bool:
        """Return whether a weight was changed, replaced or moved to another device since :meth:`renew`.

        Args:
            modules: of the model; the list that :meth:`renew` was given, unless they are others.
        """
        if modules is not self._modules or not self._held.is_same() or _places(self._weights) != self._places:
            return True
        return bool(self._probe) and not torch.equal(self._read(), self._seen)

    def _read(self) -> Tensor:
        return torch.cat(self._probe) if self._probe else torch.empty(0)

    def __getstate__(self) -> dict[str, Any]:
        return vars(WeightWatch())


def _is_plain(weight: Tensor) -> bool:
    """Return whether a weight is an ordinary tensor of numbers that can be read."""
    if not weight.is_floating_point() or weight.is_quantized or weight.layout != torch.strided or weight.is_meta:
        return False
    return type(weight) in {Tensor, nn.Parameter, nn.Buffer} and weight.numel() > 0


def _some(weights: list[Tensor]) -> list[Tensor]:
    """Return some of the weights, evenly spaced, the last one among them."""
    return weights[:: -max(1, -(-len(weights) // _PROBED))]


def _one_entry(weight: Tensor) -> Tensor:
    """Return a view of one entry, in the middle of a weight."""
    for axis, size in enumerate(weight.shape):
        weight = weight.narrow(axis, size // 2, 1)
    return weight.reshape(1)


def _places(weights: list[Tensor]) -> tuple[list[int], list[int]]:
    """Return where every weight lies, and how often it was changed."""
    try:
        return list(map(Tensor.data_ptr, weights)), list(map(_version, weights))
    except (RuntimeError, NotImplementedError):  # one was made in inference mode, or is spread over several devices
        places = [_place(weight) for weight in weights]
        return [at for at, _ in places], [version for _, version in places]


def _place(weight: Tensor) -> tuple[int, int]:
    try:
        return weight.data_ptr(), _version(weight)
    except (RuntimeError, NotImplementedError):
        return id(weight), 0


def _named_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the names of parameters and buffers, without those of compiled wrappers, and the weights."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        own = ".".join(part for part in prefix.split(".") if part != "_orig_mod")
        for name, weight in _own_weights(module):
            yield f"{own}.{name}", weight


def _own_weights(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and the values of a module's own parameters and buffers that a checkpoint holds."""
    for name, weight in (*module._parameters.items(), *module._buffers.items()):  # noqa: SLF001
        if weight is not None and name not in module._non_persistent_buffers_set:  # noqa: SLF001
            yield name, weight


def _content(weight: Tensor) -> bytes:
    """Return the values of a weight as bytes, none where it does not show them."""
    try:
        weight = weight.dequantize() if weight.is_quantized else weight
        weight = weight.to_dense() if weight.layout != torch.strided else weight
        return weight.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    except (RuntimeError, NotImplementedError, TypeError):  # on no device, or spread over several
        return b""
