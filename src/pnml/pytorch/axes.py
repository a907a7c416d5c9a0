"""Which axis of a layer's output holds the samples, and which the channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.pytorch.calls import Node

_CHANNELS_FIRST = (
    nn.modules.conv._ConvNd,  # noqa: SLF001 - the only common base of all convolutions
    nn.modules.batchnorm._NormBase,  # noqa: SLF001
    nn.GroupNorm,
)
_PLAIN_LAST = (
    nn.Linear.forward,
    nn.LayerNorm.forward,
    nn.RMSNorm.forward,
    nn.Embedding.forward,
    nn.RNN.forward,
    nn.LSTM.forward,
    nn.GRU.forward,
    nn.MultiheadAttention.forward,
)
"""What puts its channels into the last axis, whatever enters it."""


class Counts(NamedTuple):
    """How long some axes are in a forward pass.

    Attributes:
        samples: how many there are.
        tokens: how many every sample has; None where the arguments of the model do not say so.
        has_mask: says whether it is known which of so many tokens count.
    """

    samples: int
    tokens: int | None
    has_mask: Callable[[int], bool]


def has_samples(output: Tensor, samples: int) -> bool:
    """Return whether an output holds numbers, one entry per sample: along its first axis or, of three, the second."""
    if not output.is_floating_point() or output.ndim < 2:
        return False
    return output.shape[0] == samples or (output.ndim == 3 and output.shape[1] == samples)


def take_entries(node: Node, samples: int) -> None:
    """Where the first tensor that a module returns has no entry per sample, as parts of samples have, take another."""
    if node.output is not None and not has_samples(node.output, samples):
        for entry, other in enumerate(node.others, start=1):
            if other is not None and has_samples(other, samples) and other.shape[0] == samples:
                node.output, node.entry = other, entry
                break
    for child in node.children:
        take_entries(child, samples)


def axes_of(node: Node, counts: Counts) -> tuple[int, int]:
    """Return the axes of the samples and of the channels in the output of a call."""
    batch = _batch_axis(node, counts.samples)
    if node.channel_axis is not None:
        return batch, node.channel_axis
    return batch, _channel_axis(node, batch, counts.tokens)


def is_sure(node: Node, counts: Counts) -> bool:
    """Return whether sizes and classes alone tell which axis of an output holds the channels."""
    output, source = _output(node), node.source
    if output.ndim == 2 or _batch_axis(node, counts.samples):
        return True
    if output.ndim == 3 and counts.tokens is not None:
        return (output.shape[1] == counts.tokens) != (output.shape[2] == counts.tokens)
    if source is None or source.output is None or source.output.shape != output.shape:
        return False
    axis = channels_of_leaf(source)
    return axis is not None and list(output.shape[1:]).count(output.shape[axis]) == 1


def channels_of_leaf(leaf: Node) -> int | None:
    """Return the axis of the channels in the output of a module without parts, by its class or its size."""
    output, width = leaf.output, _width(leaf.module)
    if output is None:
        return None
    if isinstance(leaf.module, _CHANNELS_FIRST):
        return 1
    if type(leaf.module).forward in _PLAIN_LAST:
        return output.ndim - 1
    fitting = [axis for axis in range(1, output.ndim) if output.shape[axis] == width]
    return fitting[0] if len(fitting) == 1 else None


def _batch_axis(node: Node, samples: int) -> int:
    """Return 0, or 1 for sequences that have their samples there."""
    output = _output(node)
    if output.ndim == 3 and output.shape[1] == samples:
        first = getattr(node.module, "batch_first", None)
        if first is False or output.shape[0] != samples:
            return 1
    return 0


def _channel_axis(node: Node, batch: int, tokens: int | None) -> int:
    """Return the axis of the channels: the one that is not of the tokens, or by the last module that computed it."""
    output = _output(node)
    final = output.ndim - 1
    if batch or output.ndim == 2:
        return 1 - batch if output.ndim == 2 else final
    if output.ndim == 3 and (output.shape[1] == tokens) != (output.shape[2] == tokens):
        return final if output.shape[1] == tokens else 1
    source = node.source
    width = None if source is None else _width(source.module)
    if source is None or source.output is None or width is None:
        return 1 if output.ndim > 3 else final
    first, last = output.shape[1] == width, output.shape[final] == width
    if isinstance(source.module, _CHANNELS_FIRST):
        return _after_channels_first(output, source.output, is_first=first, is_last=last)
    if first and last and type(source.module).forward in _PLAIN_LAST and _is_same(output, source.output):
        return final
    turned_back = output.stride(1) == 1 and isinstance(source.module, (nn.LayerNorm, nn.RMSNorm))
    return 1 if first and (not last or turned_back or _is_convolutional(node)) else final


def _after_channels_first(output: Tensor, made: Tensor, *, is_first: bool, is_last: bool) -> int:
    """Return the axis of the channels in an output that follows from what a convolution or the like has made.

    Args:
        output: of three or more axes, samples first.
        made: by the convolution, with its channels in the second axis.
        is_first: whether the second axis of the output is as long as there are channels.
        is_last: whether the last one is.
    """
    final = output.ndim - 1
    if made.ndim != output.ndim:  # pixels became tokens, or rows of a normalisation were put together again
        if is_first != is_last:
            return 1 if is_first else final
        return final if output.ndim == 3 else 1
    turned = (made.shape[0], *made.shape[2:], made.shape[1])
    if made.shape != turned:
        return final if output.shape == turned else 1
    is_turned = output.data_ptr() == made.data_ptr() and output.stride() != made.stride()
    return final if is_turned else 1


def _is_same(output: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are one, or views of the same numbers in the same order."""
    return output.data_ptr() == other.data_ptr() and output.stride() == other.stride()


def _output(node: Node) -> Tensor:
    assert node.output is not None  # noqa: S101 - usable
    return node.output


def _is_convolutional(node: Node) -> bool:
    """Return whether a call, or one inside it, has its channels in the second axis."""
    return isinstance(node.module, _CHANNELS_FIRST) or any(map(_is_convolutional, node.children))


def _width(module: nn.Module) -> int | None:
    """Return how many features a module puts out, if it says so."""
    for name in ("out_features", "out_channels", "num_features", "num_channels", "embed_dim", "embedding_dim"):
        if isinstance(width := getattr(module, name, None), int):
            return width
    shape = getattr(module, "normalized_shape", None)
    if isinstance(shape, (tuple, list)) and shape:
        shape = shape[-1]
    return shape if isinstance(shape, int) else None
