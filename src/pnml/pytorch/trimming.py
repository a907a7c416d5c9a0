"""Padding that no known argument marks: samples that end in the same token again and again, and these without it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pnml.pytorch.call_inputs import first_input
from pnml.pytorch.head import tensors_in, with_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from pnml.pytorch.batches import Arguments


_MOST = 3  # samples


def trimmed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Arguments, Arguments]]:
    """Yield arguments of a few samples that may end in padding, and the same without it.

    It is looked for in the first input of two or three axes, if there is another one that may tell the model of it. All
    axes as long as that of its tokens are cut, of a mask or of an adjacency matrix as well.

    Args:
        args: the positional arguments of a model.
        kwargs: its keyword arguments.

    >>> import torch
    >>> words, sizes = torch.tensor([[5, 6, 7, 8], [5, 6, 0, 0], [7, 8, 0, 0]]), torch.tensor([4, 2, 2])
    >>> next(short for (_, ((short, _), _)) in trimmed((words, sizes), {}))
    tensor([[5, 6],
            [7, 8]])
    """
    first = first_input(args, kwargs, least=2)
    if first is None or first.ndim > 3 or not first.numel() or len(list(tensors_in((args, kwargs)))) < 2:
        return
    for axis in range(1, first.ndim):
        tokens = first.movedim(axis, 1).reshape(len(first), first.shape[axis], -1)
        runs = _runs(tokens)
        if runs.any():
            numbers = ((2 * runs >= runs.max()) & (runs > 0)).nonzero()[:_MOST, 0]
            most = int(runs[numbers].min().clamp(max=tokens.shape[1] - 1))
            for cut in dict.fromkeys((most, (most + 1) // 2, 1)):  # not all of it may be padding
                change = partial(_taken, first, axis, numbers)
                whole, short = (
                    with_tensors(partial(change, part), (args, kwargs)) for part in (slice(None), slice(-cut))
                )
                yield whole, short


def _runs(tokens: Tensor) -> Tensor:
    """Return how many tokens (n, T, F) at the end of each sample are the same; 0 where that may be by chance.

    A single one is padding if all its features are one number, or if longer ends of other samples are of the same.
    """
    last = tokens[:, -1:]
    runs = (tokens == last).all(dim=2).flip(1).long().cumprod(dim=1).sum(dim=1)
    is_one_number = (last == last[:, :, :1]).flatten(1).all(dim=1) & (last.shape[2] > 1)
    is_as_longest = (last == last[runs.argmax()]).flatten(1).all(dim=1) & (runs.max() > 1)
    return runs.where((runs > 1) | is_one_number | is_as_longest, 0)


def _taken(first: Tensor, axis: int, numbers: Tensor, part: slice, x: Tensor) -> Tensor:
    """Return some samples of an argument, and of its tokens a part; which axis has them is known of the first input.

    Lengths that are shares of the longest are shares of what is left.
    """
    tokens, is_by_sample = first.shape[axis], x.ndim > 0 and len(x) == len(first)
    axes = {axis} if x is first else {a for a in range(is_by_sample, x.ndim) if x.shape[a] == tokens}
    x = x[numbers] if is_by_sample else x
    if is_by_sample and x.ndim == 1 and x.is_floating_point() and bool(((x > 0) & (x <= 1)).all()):
        return x * tokens / len(range(tokens)[part])
    return x[tuple(part if a in axes else slice(None) for a in range(x.ndim))].clone()
