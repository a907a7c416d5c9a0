"""Which axis of a layer's output holds the channels, seen by changing one channel of a layer before it."""

from __future__ import annotations

from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from pnml.pytorch.axes import channels_of_leaf
from pnml.pytorch.calls import Node, tensor_at
from pnml.pytorch.head import attempt, run_on_copies, unfused_attention

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TRIED = 6  # modules before an output, from the last one back
_MOST = 0.5  # of two changes, how much they may have in common along the channels, and more along all other axes


class _Change(NamedTuple):
    """A change of one channel in what a module puts out.

    Attributes:
        leaf: the call of the module.
        axis: of its channels.
        half: which half of the channels it is in, 0 or 1.
    """

    leaf: Node
    axis: int
    half: int

    def made(self, _node: Node, output: Any) -> Tensor | None:
        """Return an output with larger numbers in that channel of the half that had the largest.

        Such numbers pass through most activations. They differ from place to place, so that a mean that is subtracted
        does not take the change away.
        """
        if not isinstance(output, Tensor) or not output.numel():
            return None
        changed = output.movedim(self.axis, -1).clone()
        channels = torch.arange(changed.shape[-1], device=changed.device).tensor_split(2)[self.half]
        number = channels[changed[..., channels].flatten(0, -2).mean(dim=0).argmax()]
        channel = changed[..., number]
        size = output.float().std(correction=0).nan_to_num(0)
        step = torch.linspace(0.5, 1.5, channel.numel(), device=channel.device).reshape(channel.shape)
        changed[..., number] = channel + (step * torch.where(size > 0, size, 1)).to(channel.dtype)
        return changed.movedim(-1, self.axis)


@torch.no_grad()
def probe_channels(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], nodes: Sequence[Node]) -> None:
    """Set the ``channel_axis`` of calls of modules, where the model itself shows it.

    Two channels of what a linear layer, a convolution or the like puts out are changed at all places, one after the
    other. In an output that follows from it, other channels change then, at the same places. The axis stays None where
    the model shows nothing of that kind.

    Args:
        model: is run once, and a few times more for every call.
        args: its positional arguments.
        kwargs: its keyword arguments.
        nodes: these calls; their outputs have their samples in the first axis.
    """
    run = partial(run_on_copies, model, args, kwargs)
    plain = outputs_of(run, nodes) if nodes else {}
    for node in nodes:
        for leaf, axis in _leaves(node):
            changes = [_Change(leaf, axis, half) for half in (0, 1)]
            changed = [attempt(partial(outputs_of, run, [node], change)) or {} for change in changes]
            found = _axis_of_changes(*(outputs.get(node) for outputs in (plain, *changed)))
            if found is not None:
                node.channel_axis = found
                break


def _leaves(node: Node) -> Iterator[tuple[Node, int]]:
    """Yield the last modules before a call returned of which it is sure where they have their channels."""
    leaf, count = node.source, 0
    while leaf is not None and count < _TRIED:
        axis = channels_of_leaf(leaf)
        if axis is not None and leaf.output is not None and leaf.output.shape[axis] > 1:
            count += 1
            yield leaf, axis
        leaf = leaf.previous


def _axis_of_changes(plain: Tensor | None, first: Tensor | None, second: Tensor | None) -> int | None:
    """Return the only axis, after that of the samples, along which two changes of an output differ; None if unsure.

    >>> x = torch.zeros(2, 5, 5)
    >>> y, z = x.clone(), x.clone()
    >>> y[:, :, 3], z[:, :, 4] = 1, 1
    >>> _axis_of_changes(x, y, z), _axis_of_changes(x, x, x), _axis_of_changes(x, x + 1, x + 1)
    (2, None, None)
    """
    if plain is None or first is None or second is None or not plain.shape == first.shape == second.shape:
        return None
    energies = [(x.float() - plain.float()).square().nan_to_num(0, 0, 0) for x in (first, second)]
    if not all(bool(energy.any()) for energy in energies):
        return None
    found = []
    for axis in range(1, plain.ndim):
        along = [energy.movedim(axis, 0).flatten(1).sum(dim=1) for energy in energies]
        common = torch.minimum(*(shares / shares.sum() for shares in along)).sum()
        found += [axis] if common <= _MOST else []
    return found[0] if len(found) == 1 else None


def outputs_of(run: Callable[[], Any], nodes: Sequence[Node], change: _Change | None = None) -> dict[Node, Tensor]:
    """Return what calls return in a forward pass, in which a channel of a module may be changed."""
    found: dict[Node, Tensor] = {}

    def keep(node: Node, output: Any) -> None:
        tensor = tensor_at(output, node.entry)
        if tensor is not None:
            found[node] = tensor.clone()  # the next module may overwrite its input

    handles = []
    try:
        if change is not None:
            handles.append(change.leaf.module.register_forward_hook(_at_call(change.leaf, change.made)))
        handles += [node.module.register_forward_hook(_at_call(node, keep)) for node in nodes]
        with unfused_attention():
            run()
    finally:
        for handle in handles:
            handle.remove()
    return found


def _at_call(node: Node, act: Callable[[Node, Any], Any]) -> Callable[..., Any]:
    """Return a hook that acts on what a module returns in one of its calls in this thread."""
    thread, calls = get_ident(), 0

    def hook(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
        nonlocal calls
        if get_ident() != thread:
            return None
        calls += 1
        return act(node, output) if calls == node.call + 1 else None

    return hook
