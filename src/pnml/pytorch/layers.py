"""Intermediate layers of any PyTorch model, chosen evenly over its depth."""

from __future__ import annotations

import warnings
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from pnml.pytorch.axes import Counts, axes_of, has_samples, is_sure, take_entries
from pnml.pytorch.call_inputs import few_samples, first_input
from pnml.pytorch.calls import Node, call_tree
from pnml.pytorch.channel_probe import probe_channels
from pnml.pytorch.masks import mask_of_length
from pnml.pytorch.padding import missing_tokens, which_see_padding
from pnml.pytorch.token_mask import token_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pnml.pytorch.batches import Arguments
    from pnml.pytorch.token_mask import MaskSource

COUNT = 8
"""How many layers are chosen, where the model has as many."""

_LONGEST_REACH = 15  # tokens; where more are missing, they were joined
_WIDEST = 8192  # pooled features; one correlation of them takes half a gigabyte


class LayersNotFoundError(ValueError):
    """Layers of a model cannot be watched, or not in every forward pass.

    Attributes:
        names: of the layers, where it is known that others can.
    """

    def __init__(self, message: str, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = tuple(names)


class LayersNotFoundWarning(UserWarning):
    """No earlier layers of a model can be watched: its embeddings alone are."""


class Layer(NamedTuple):
    """The output of a module, and how to read it.

    Attributes:
        name: of the module in the model.
        call: which of the module's calls in a forward pass, from 0.
        batch_axis: the axis of the samples.
        channel_axis: the axis of the features; all others are pixels or tokens.
        entry: which of the tensors that the module returns, from 0.
        has_places: whether there are pixels or tokens, whose standard deviations count, too. In some batch there may be
            one of them, as in a text of one word.
        has_mask: whether a mask of the model's tokens says which of these count.
        reach: how many tokens further each of its tokens reaches: a convolution of three reaches two, and has two less.
            If it is negative, so many tokens of its own stand before those of the model, as one for the class.
    """

    name: str
    call: int = 0
    batch_axis: int = 0
    channel_axis: int = 1
    entry: int = 0
    has_places: bool = True
    has_mask: bool = True
    reach: int = 0

    def __str__(self) -> str:
        return self.name if self.call == 0 else f"{self.name}#{self.call}"


def check_layer_names(model: nn.Module, names: Sequence[str]) -> None:
    """Raise ``ValueError`` for a name that is of no module of the model, or of no call, and for one that is twice."""
    known = [name for name, _ in model.named_modules() if name]
    seen: set[tuple[str, int]] = set()
    for name in names:
        module, _, call = name.partition("#")
        if module not in known:
            raise ValueError(f"layer {name!r} is no module of the model; some of its modules are {known[:20]}")
        if "#" in name and not call.isdecimal():
            raise ValueError(f"layer {name!r} must have the number of a call after #, from 0, as in '{module}#1'")
        if _split(name) in seen:
            raise ValueError(f"layer {name!r} is named twice: name every layer once")
        seen.add(_split(name))


def choose_layers(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    head: str | Sequence[str],
    wanted: str | Sequence[str],
    widths: Sequence[int] = (),
    source: MaskSource | None = None,
) -> tuple[Layer, ...]:
    """Return the layers to watch, found by running a model on a few samples of a batch.

    Args:
        model: a classifier.
        args: its positional arguments.
        kwargs: its keyword arguments.
        head: the name of its last linear layer, or the names of those that it adds up.
        wanted: "auto" for layers evenly spaced over the depth, with a :class:`LayersNotFoundWarning` if there are none;
            "last" for none; or the names of layers.
        widths: how many features they have, where that is known.
        source: what says which tokens count, where no name of an argument does.
    """
    if wanted == "last":
        return ()
    named = None if wanted == "auto" else wanted
    layers: tuple[Layer, ...] = ()
    reason = "the model has no layer before its head with one entry per sample that can be watched"
    try:
        find = partial(find_layers, model, head=head, named=named, widths=widths, source=source, batch=(args, kwargs))
        layers = _with_few(find, args, kwargs)
    except LayersNotFoundError as error:
        if named is not None:
            raise
        reason = str(error)
    if not layers:
        warn_of_fallback(reason)
    return layers


def _with_few(
    find: Callable[[tuple[Any, ...], dict[str, Any]], tuple[Layer, ...]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Layer, ...]:
    """Find layers with a few samples, or with the whole batch if the model takes nothing else."""
    try:
        return find(*few_samples(args, kwargs))
    except LayersNotFoundError:
        raise
    except Exception:  # noqa: BLE001 - whatever a model raises
        return find(args, kwargs)


def warn_of_fallback(reason: str) -> None:
    """Warn that the embeddings alone are watched."""
    message = f"{reason}. The embeddings alone are watched, as with layers='last'"
    warnings.warn(message, LayersNotFoundWarning, stacklevel=6)


def _split(name: str) -> tuple[str, int]:
    """Return the name of a module and which of its calls is meant, from ``str(layer)``."""
    module, _, call = name.partition("#")
    return module, int(call or 0)


def find_layers(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    head: str | Sequence[str],
    named: Sequence[str] | None = None,
    widths: Sequence[int] = (),
    source: MaskSource | None = None,
    batch: Arguments | None = None,
) -> tuple[Layer, ...]:
    """Return layers of a model before its head, evenly spaced over its depth, in the order in which they are called.

    Depth is counted in calls of modules that have parameters of their own. The tree of calls is split until the pieces
    are small parts of it; they are the model's blocks, whatever their class. The outputs nearest to equal steps of
    depth are taken, but for those that change with padding that the model leaves out.

    Args:
        model: is run once, and a few times more where it is given a mask of tokens.
        args: its positional arguments.
        kwargs: its keyword arguments.
        head: the name of its last linear layer, or the names of those that it adds up.
        named: names of modules to take instead.
        widths: how many features these have, where that is known.
        source: what says which tokens count, where no name of an argument does.
        batch: arguments with more samples, if there are any.

    >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.LazyLinear(2))
    >>> [str(layer) for layer in find_layers(model, (torch.zeros(5, 3, 8, 8),), head="4")]
    ['1', '2']
    """
    kwargs, heads = kwargs or {}, (head,) if isinstance(head, str) else tuple(head)
    root, entered = call_tree(model, args, kwargs, heads)
    if len(entered) < len(heads):
        own = "the model itself is its head"
        raise LayersNotFoundError(own if "" in heads else f"the head {' + '.join(heads)!r} was not called")
    counts = _counts(token_mask(model, args, kwargs, source), model, args, kwargs, entered[0].shape[0])
    take_entries(root, counts.samples)
    total = root.end
    if named is None:
        blocks = [node for node in _blocks(root, total / COUNT) if _is_usable(node, counts, entered)]
    else:
        blocks = [_named(root, name, counts) for name in named]
    shorter = {node: _token_axis(node, counts) for node in blocks if _may_be_short(node, counts)}
    for node, missing in missing_tokens(model, args, kwargs, shorter, source=source).items():
        node.joins_tokens = not missing <= {0, _missing(node, counts)}
        node.reach = (0 if node.joins_tokens else max(missing)) if missing else None
    see_padding = partial(which_see_padding, model, args, kwargs, heads, source=source, batch=batch)
    _look_ahead(see_padding, blocks, counts)
    if named is not None:
        probe_channels(model, args, kwargs, [node for node in blocks if not is_sure(node, counts)])
        return tuple(_of_width(node, counts, width) for node, width in zip_longest(blocks, widths))
    found = [_layer(node, counts) for node in blocks]
    sees_padding = see_padding(found)
    if blocks and all(sees_padding):
        raise LayersNotFoundError("the outputs of all layers before the head change with padding, the answer does not")
    blocks = [node for node, sees in zip(blocks, sees_padding, strict=True) if not sees]
    by_depth: dict[int, Node] = {}
    for node in blocks:  # of outputs at the same depth the last that still has pixels or tokens
        there = by_depth.get(node.end)
        if there is None or _layer(node, counts).has_places or not _layer(there, counts).has_places:
            by_depth[node.end] = node
    chosen: set[int] = set()
    for step in range(1, COUNT + 1):
        left = [depth for depth in by_depth if depth not in chosen]
        if left:
            chosen.add(min(left, key=lambda depth: abs(depth - step * total / COUNT)))
    taken = [by_depth[depth] for depth in sorted(chosen)]
    probe_channels(model, args, kwargs, [node for node in taken if not is_sure(node, counts)])
    return tuple(_layer(node, counts) for node in taken)


def _look_ahead(
    see_padding: Callable[[Sequence[Layer]], list[bool | None]], nodes: Sequence[Node], counts: Counts
) -> None:
    """Set the reach of calls that put out a few tokens of their own before those of the model."""
    longer = {node: -more for node in nodes if (more := _more(node, counts))}
    layers = [_layer(node, counts)._replace(reach=reach) for node, reach in longer.items()]
    for (node, reach), sees in zip(longer.items(), see_padding(layers), strict=True):
        node.reach = node.reach if sees is not False else reach


def _blocks(node: Node, deepest: float) -> Iterator[Node]:
    """Split a call into pieces and yield them: chains down to ``deepest``, what is more than a chain to twice that.

    A residual block is more than a chain: its output says more than those of its parts.
    """
    for child in node.children:
        allowed = deepest if child.is_chain else 2 * deepest
        if child.children and (child.depth > allowed or child.output is None):
            yield from _blocks(child, deepest)
        elif child.output is not None:
            yield child


def _is_usable(node: Node, counts: Counts, entered: Sequence[Tensor]) -> bool:
    """Return whether an output holds numbers, has one entry per sample, is not too wide, and no embedding."""
    output = node.output
    if output is None or not has_samples(output, counts.samples):
        return False
    if node.end == 0 or isinstance(node.module, (nn.Flatten, nn.Identity)):
        return False
    if any(_is_embedding(output, embeddings) for embeddings in entered):
        return False
    layer = _layer(node, counts)
    return output.shape[layer.channel_axis] * (1 + layer.has_places) <= _WIDEST


def _is_embedding(output: Tensor, embeddings: Tensor) -> bool:
    """Return whether an output is the embeddings (n, M), with any axes of one entry beside theirs."""
    if embeddings.ndim != 2 or output.numel() != embeddings.numel() or len(output) != len(embeddings):
        return False
    return embeddings.shape[1] in output.shape and torch.equal(output.reshape(embeddings.shape), embeddings)


def _named(root: Node, name: str, counts: Counts) -> Node:
    nodes, found = [root], []
    for node in nodes:  # which grows on the way
        nodes.extend(node.children)
        if (node.name, node.call) == _split(name) and node is not root:
            found.append(node)
    if not found:
        raise LayersNotFoundError(
            f"no module {name!r} was called before the head; some that were: "
            f"{[str(Layer(node.name, node.call)) for node in nodes[1:] if node.output is not None][:20]}"
        )
    output = found[0].output
    if output is None or not has_samples(output, counts.samples):
        raise LayersNotFoundError(f"the output of {name!r} does not have one entry per sample: take another layer")
    return found[0]


def _of_width(node: Node, counts: Counts, width: int | None) -> Layer:
    """Return the layer of a call, with places or without by the number of its features, where that is known."""
    layer = _layer(node, counts)
    assert node.output is not None  # noqa: S101 - usable
    several = 2 * node.output.shape[layer.channel_axis]
    return layer if width not in {several, several // 2} else layer._replace(has_places=width == several)


def _layer(node: Node, counts: Counts) -> Layer:
    assert node.output is not None  # noqa: S101 - usable
    output, (batch, channels) = node.output, axes_of(node, counts)
    several = output.numel() > output.shape[batch] * output.shape[channels]
    has_places = several or (output.ndim == 3 and counts.tokens == 1)
    is_told = output.ndim != 3 or counts.has_mask(output.shape[_token_axis(node, counts)])
    has_mask = is_told and not node.joins_tokens
    reach = node.reach if node.reach is not None else 0 if has_mask else _missing(node, counts)
    return Layer(node.name, node.call, batch, channels, node.entry, has_places, has_mask or reach > 0, reach)


def _token_axis(node: Node, counts: Counts) -> int:
    """Return the axis of the tokens in an output of three axes."""
    return 3 - sum(axes_of(node, counts))


def _may_be_short(node: Node, counts: Counts) -> bool:
    """Return whether an output has a few tokens fewer than the model, or as many as the mask seems to tell."""
    assert node.output is not None  # noqa: S101 - usable
    if node.output.ndim != 3 or counts.tokens is None:
        return False
    tokens = node.output.shape[_token_axis(node, counts)]
    return tokens < counts.tokens and (_missing(node, counts) > 0 or counts.has_mask(tokens))


def _missing(node: Node, counts: Counts) -> int:
    """Return how many tokens fewer than the model an output has; 0 where it has no tokens, or many fewer."""
    assert node.output is not None  # noqa: S101 - usable
    if node.output.ndim != 3 or counts.tokens is None:
        return 0
    missing = counts.tokens - node.output.shape[_token_axis(node, counts)]
    return missing if 0 < missing <= _LONGEST_REACH else 0


def _more(node: Node, counts: Counts) -> int:
    """Return how many tokens more than the model an output has, where a mask tells which count; 0 for many more."""
    assert node.output is not None  # noqa: S101 - usable
    if node.output.ndim != 3 or counts.tokens is None or not _layer(node, counts).has_mask:
        return 0
    more = node.output.shape[_token_axis(node, counts)] - counts.tokens
    return more if 0 < more <= _LONGEST_REACH else 0


def _counts(
    mask: Tensor | None, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], samples: int
) -> Counts:
    """Return how long axes are: that of tokens by a mask of them or by their numbers in a vocabulary."""
    if mask is not None and len(mask) == samples:
        return Counts(samples, mask.shape[1], lambda length: mask_of_length(model, mask, length) is not None)
    if mask is not None:  # of other samples than the head's: nothing is known
        return Counts(samples, None, lambda _: False)
    first = first_input(args, kwargs)
    tokens = None if first is None or first.is_floating_point() or first.ndim != 2 else first.shape[1]
    return Counts(samples, tokens, lambda length: tokens is None or length >= tokens)
