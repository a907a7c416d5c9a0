"""Which layers of a model are watched: outputs of its repeated blocks, evenly spaced over its depth, or named ones."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pnml.pytorch.batches import few_samples, sample_count
from pnml.pytorch.contract import Layer
from pnml.pytorch.models import unwrapped
from pnml.pytorch.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pnml.pytorch.trace import Call

COUNT = 4
"""How many layers "auto" is."""

MOST_TRACED = 8
"""Samples that a model is traced with."""

_CONTAINERS = (nn.Sequential, nn.ModuleList)
_CONVOLUTIONAL = (nn.modules.conv._ConvNd, nn.modules.batchnorm._NormBase, nn.GroupNorm)  # noqa: SLF001


_WIDTHS = (
    *("in_features", "out_features", "in_channels", "out_channels", "num_features", "num_channels"),
    *("embed_dim", "hidden_size", "embedding_dim"),
)
_PASSED_ON = (nn.Flatten, nn.Identity, nn.modules.dropout._DropoutNd)  # noqa: SLF001


class LayersNotFoundError(ValueError):
    """Layers of a model cannot be watched, or not in every forward pass."""


class LayersNotFoundWarning(UserWarning):
    """No earlier layers of a model can be watched: its embeddings alone are."""


def warn_of_fallback(reason: str) -> None:
    """Warn that the embeddings alone are watched."""
    message = f"{reason}. The embeddings alone are watched, as with layers='last'"
    warnings.warn(message, LayersNotFoundWarning, stacklevel=8)


def checked_layers(model: nn.Module, layers: Any) -> str | int | tuple[str, ...]:
    """Return "auto" or a number of layers, or names as a tuple, empty for "last"; raise for anything else.

    >>> checked_layers(nn.Sequential(nn.ReLU()), "last"), checked_layers(nn.Sequential(nn.ReLU()), ["0"])
    ((), ('0',))
    """
    if isinstance(layers, str) and layers == "last":
        return ()
    if layers == "auto" or (type(layers) is int and layers > 0):
        return layers  # type: ignore[no-any-return]
    if isinstance(layers, (str, int)) or not isinstance(layers, Iterable):
        kind = ValueError if isinstance(layers, (str, int)) else TypeError
        raise kind(f'layers must be "auto", "last", a number of layers or names of modules, got {layers!r}')
    names = tuple(layers)
    check_layer_names(model, names)
    return names


def check_layer_names(model: nn.Module, names: Sequence[Any]) -> None:
    """Raise ``ValueError`` for a name that is of no module of the model, or of no call, and for one that is twice."""
    modules = [name for name, _ in model.named_modules() if name]
    before: set[tuple[str, int]] = set()
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"layers must be names of modules, got {name!r}: see dict(model.named_modules())")
        module, _, call = name.partition("#")
        if module not in modules:
            raise ValueError(f"layer {name!r} is no module of the model; some of its modules are {modules[:20]}")
        if "#" in name and not call.isdecimal():
            raise ValueError(f"layer {name!r} must have the number of a call after #, from 0, as in '{module}#1'")
        if _split(name) in before:
            raise ValueError(f"layer {name!r} is named twice: name every layer once")
        before.add(_split(name))


@torch.no_grad()
def find_layers(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *, head: str, count: int = COUNT
) -> tuple[Layer, ...]:
    """Return the layers that a guard with ``layers="auto"`` watches, found by running a model in eval mode.

    Args:
        model: a classifier.
        args: its positional arguments.
        kwargs: its keyword arguments.
        head: the name of its last layer.
        count: how many layers.

    >>> body = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    >>> model = nn.Sequential(*body, nn.Linear(8, 2))
    >>> [str(layer) for layer in find_layers(model, (torch.rand(5, 3, 8, 8),), head="6")]
    ['1', '3']
    """
    args, kwargs = few_samples(args, kwargs or {}, MOST_TRACED)
    trace = Trace(unwrapped(model), args, kwargs)
    calls = [call for call in trace.calls if call.name == head]
    if not calls:
        raise LayersNotFoundError(f"the head {head!r} was not called: name the last layer that the model calls")
    return choose_layers(trace, calls[0], sample_count(args, kwargs) or 0, count)


def choose_layers(trace: Trace, head: Call, samples: int, layers: int | tuple[str, ...]) -> tuple[Layer, ...]:
    """Return named layers, or a number of those before the head, evenly spaced, in the order of their calls."""
    parts = set(_inside(head))
    before = [call for call in trace.calls[: trace.calls.index(head)] if call not in parts]
    if isinstance(layers, tuple):
        return tuple(_named(name, before, samples) for name in layers)
    usable = [call for call in before if _is_usable(call, samples, head)]
    holders = _holders(trace.root, head)
    blocks = _blocks(trace.root, usable, holders, layers=2) or _blocks(trace.root, usable, holders, layers=1)
    if blocks:
        spaced = {round((step + 1) * len(blocks) / layers) - 1 for step in range(layers)} - {-1}
        chosen = [blocks[number] for number in sorted(spaced)]
    else:
        chosen = _spaced([call for call in usable if not call.children], head.start, layers)
    return tuple(_layer(call, samples) for call in chosen)


def _holders(root: Call, head: Call) -> set[Call]:
    """Return the calls inside which the head is called."""
    if head in root.children:
        return {root}
    for child in root.children:
        inner = _holders(child, head)
        if inner:
            return {root, *inner}
    return set()


def _blocks(root: Call, usable: Sequence[Call], holders: set[Call], *, layers: int) -> list[Call]:
    """Return the usable calls of a model's repeated blocks: of a class that there is again, or of an ``nn.ModuleList``.

    A class of which a call has a list of such blocks inside is one of stages. These are split, but for those that show
    none of their blocks; the parts of blocks are not looked at. A block has so many ``layers`` with weights at least;
    the ``holders`` of the head are none.
    """
    everywhere = list(_inside(root))
    parted = [call for call in everywhere if call.children and _count_layers(call.module) >= layers]
    parted = [call for call in parted if call not in holders and not isinstance(call.module, nn.Sequential)]
    counts = Counter(type(call.module) for call in parted)
    repeated = {call for call in parted if counts[type(call.module)] > 1 or _is_listed(root, call)}
    stages = {type(call.module) for call in everywhere if _has_list(call, repeated)}

    def split(parent: Call) -> list[Call]:
        blocks: list[Call] = []
        for child in parent.children:
            inner: list[Call] = []
            if child not in repeated or type(child.module) in stages:
                inner = split(child)
            blocks += inner or [call for call in [child] if call in repeated and call in usable]
        return blocks

    return split(root)


def _inside(call: Call) -> Iterator[Call]:
    for child in call.children:
        yield child
        yield from _inside(child)


def _count_layers(module: nn.Module) -> int:
    """Return how many layers a module has, normalisations not among them: their weights have one axis."""
    weights = (getattr(part, "weight", None) for part in module.modules())
    return sum(isinstance(weight, Tensor) and weight.ndim > 1 for weight in weights)


def _is_listed(root: Call, call: Call) -> bool:
    """Return whether a module is in an ``nn.ModuleList``: a block, also of a model that has one."""
    holder, _, _ = call.name.rpartition(".")
    return type(root.module.get_submodule(holder)) is nn.ModuleList


def _has_list(call: Call, blocks: set[Call]) -> bool:
    """Return whether a call has several blocks of one class inside that are in one ``nn.Sequential`` or list."""
    inner = {(each.name, type(each.module)) for each in _inside(call) if each in blocks}
    prefix = f"{call.name}." if call.name else ""
    holders = Counter((name.removeprefix(prefix).rpartition(".")[0], kind) for name, kind in inner)
    lists = (call.module.get_submodule(holder) for (holder, _), count in holders.items() if count > 1)
    return any(isinstance(each, _CONTAINERS) for each in lists)


def _spaced(usable: Sequence[Call], total: int, count: int) -> list[Call]:
    """Return outputs nearest to equal steps of depth; of those at one depth the last that has pixels or tokens."""
    by_depth: dict[int, Call] = {}
    for call in sorted(usable, key=_has_places):  # which keeps the order otherwise
        by_depth[call.end] = call
    chosen: set[int] = set()
    for step in range(1, count + 1):
        left = [depth for depth in by_depth if depth not in chosen]
        if left:
            chosen.add(min(left, key=lambda depth: abs(depth - step * total / count)))
    return [by_depth[depth] for depth in sorted(chosen)]


def _has_places(call: Call) -> bool:
    return len(call.shape or ()) > 2


def _is_usable(call: Call, samples: int, head: Call) -> bool:
    """Return whether an output holds numbers, has one entry per sample, and is not the embedding itself."""
    if _samples_axis(call, samples) is None or call.end == 0 or isinstance(call.module, _PASSED_ON):
        return False
    entered = head.entered
    output = call.output
    if entered is None or sum(size > 1 for size in entered.shape[1:]) > 1:  # it is one of its tokens, or their mean
        return True
    if output is None or output.numel() != entered.numel() or len(output) != len(entered):
        return True
    return not torch.equal(output.reshape(entered.shape), entered)


def _samples_axis(call: Call, samples: int) -> int | None:
    """Return the axis of the samples in an output, None if it has none, or nothing else."""
    shape = call.shape
    if shape is None or len(shape) < 2 or 0 in shape:
        return None
    if isinstance(call.module, nn.RNNBase) and len(shape) == 3:
        axis = 0 if call.module.batch_first else 1
        return axis if shape[axis] == samples else None
    if shape[0] == samples:
        return 0
    return 1 if len(shape) == 3 and shape[1] == samples else None


def _layer(call: Call, samples: int) -> Layer:
    axis = _samples_axis(call, samples)
    assert axis is not None  # noqa: S101 - usable
    return Layer(call.name, call.number, axis, _channel_axis(call, axis))


def _channel_axis(call: Call, samples_axis: int) -> int:
    """Return the axis of an output that is as long as its module is wide, or the last one with weights before it."""
    assert call.shape is not None  # noqa: S101 - usable
    last = len(call.shape) - 1
    if last == 1 or samples_axis == 1:
        return last
    parts = list(call.module.modules())
    widths = set().union(*map(_widths, parts))
    if not widths and call.weights is not None:  # an activation
        parts = [call.weights]
        widths = _widths(call.weights)
    is_last = call.shape[last] in widths
    if is_last != (call.shape[1] in widths):
        return last if is_last else 1
    if any(isinstance(part, _CONVOLUTIONAL) for part in parts):
        return 1
    return last if last == 2 or widths else 1


def _widths(module: nn.Module) -> set[Any]:
    """Return how many channels a module takes or puts out, as far as its class says so."""
    if isinstance(module, nn.LayerNorm):
        return set(module.normalized_shape) if len(module.normalized_shape) == 1 else set()
    return {getattr(module, name, None) for name in _WIDTHS} - {None}


def _named(name: str, before: Sequence[Call], samples: int) -> Layer:
    call = next((call for call in before if (call.name, call.number) == _split(name)), None)
    if call is None:
        some = [str(Layer(call.name, call.number)) for call in before if call.shape is not None and call.name][:20]
        raise LayersNotFoundError(f"no module {name!r} was called before the head; some that were: {some}")
    if _samples_axis(call, samples) is None:
        raise LayersNotFoundError(f"the output of {name!r} does not have one entry per sample: take another layer")
    return _layer(call, samples)


def _split(name: str) -> tuple[str, int]:
    """Return the name of a module and which of its calls is meant, from ``str(layer)``."""
    module, _, call = name.partition("#")
    return module, int(call or 0)


def input_table(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Return the first argument of a model if it is a table of numbers, (n, columns); None if it is anything else."""
    first = args[0] if args else next(iter(kwargs.values()), None)
    is_table = isinstance(first, Tensor) and first.ndim == 2 and first.is_floating_point()
    return first if is_table else None
