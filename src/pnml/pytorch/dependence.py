"""Whether a model's rows of a sample are its own: the same in another order, with fewer others, and when run again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from pnml.pytorch.call_inputs import enough_samples, first_input
from pnml.pytorch.head import HeadNotFoundError, attempt, with_tensors
from pnml.pytorch.refusals import WAY_OUT

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.pytorch.batches import Arguments
    from pnml.pytorch.outputs import Outputs

    Run = Callable[[tuple[Any, ...], dict[str, Any]], Outputs]

_MOST = 8  # samples that are tried
_ROUNDING = 1e-3  # of the norm; batches of other sizes may be computed in another way
_SHARE = 0.1  # of how far samples are apart

_RANDOM = (
    "the model answers the same batch differently when it is run again, also in eval mode, so a sample gets another "
    "regret with every call. Dropout as a function needs training=self.training, and a state that is kept from batch "
    "to batch has to be reset"
)
_DEPENDENT = (
    "the model's answer for a sample depends on the other samples of its batch, and so do the regrets. Look for "
    "attention or a recurrent layer over the axis of the samples (batch_first=True is missing), and for batch "
    "normalisation without running statistics"
)
_REORDERED = (
    "what enters the head is in another order than the answers: the model sorts its samples and puts them back after "
    "the head. Put them back before it"
)


class UnstableModelWarning(UserWarning):
    """What a model makes of a sample depends on chance, or on the other samples of its batch."""


class Dependence(NamedTuple):
    """What the other samples of a batch do to the rows of a sample.

    Attributes:
        warning: what is wrong with the model's answers, None if nothing is.
        layers: of every layer whether its rows depend on the other samples, though the answers do not.
    """

    warning: str | None
    layers: tuple[bool, ...]


def dependence_of(run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Dependence | None:
    """Return whether a model's rows of some samples change with the others; None where it cannot be asked.

    The samples are run in two orders, and the first half of them alone. Of one or two, others are made.

    Args:
        run: returns what the model and its layers make of arguments.
        args: the positional arguments of a batch.
        kwargs: its keyword arguments.
    """
    args, kwargs = enough_samples(args, kwargs)
    for axis in (0, 1):
        found = attempt(partial(_asked, run, args, kwargs, axis))
        if found is not None and found.warning == _REORDERED:
            raise HeadNotFoundError(f"{_REORDERED}.{WAY_OUT}")
        if found is not None:
            return found
    return None


def _asked(run: Run, args: tuple[Any, ...], kwargs: dict[str, Any], axis: int) -> Dependence | None:
    first = first_input(args, kwargs, least=axis + 1)
    if first is None or first.shape[axis] < 3:
        return None
    count = min(_MOST, first.shape[axis] - 1)  # fewer than all: another axis as long would not get shorter
    numbers = torch.linspace(0, first.shape[axis] - 1, count).round().long()
    orders = numbers, numbers.flip(0), numbers[: count // 2], numbers
    taken = (_taken(args, kwargs, order, first.shape[axis], axis) for order in orders)
    plain, turned, half = (_rows(run(*next(taken)), len(order)) for order in orders[:3])
    if plain is None or turned is None or half is None:
        return None
    answers, entered, *layers = (
        _differ(x.flip(0), y) or _differ(x[: len(z)], z) for x, y, z in zip(plain, turned, half, strict=True)
    )
    if answers or entered:
        again = _rows(run(*next(taken)), count)
        is_random = again is None or any(_differ(x, y) for x, y in zip(plain, again, strict=True))
        warning = _RANDOM if is_random else _DEPENDENT if answers else _REORDERED
        return Dependence(warning, (False,) * len(layers))
    return Dependence(None, tuple(layers))


def _taken(args: tuple[Any, ...], kwargs: dict[str, Any], numbers: Tensor, count: int, axis: int) -> Arguments:
    """Return arguments with some of ``count`` samples, which are along an axis, or the only one."""

    def some(x: Tensor) -> Tensor:
        along = min(axis, x.ndim - 1)
        if not x.ndim or x.shape[along] != count:
            return x.clone()
        return x[:, numbers.to(x.device)] if along else x[numbers.to(x.device)]  # which keep the order in memory

    taken: Arguments = with_tensors(some, (args, kwargs))
    return taken


def _rows(outputs: Outputs, count: int) -> list[Tensor] | None:
    """Return logits, embeddings and features as rows of samples, without what does not count; None for other counts."""
    rows = [outputs.logits, outputs.embeddings, *outputs.features]
    if (len(rows[0]) if outputs.places is None else outputs.places[0]) != count:
        return None
    if outputs.counts is not None:
        rows = [x.where(outputs.counts[:, None], 0) for x in rows]
    return rows if outputs.places is None else [x.reshape(count, -1) for x in rows]


def _differ(x: Tensor, y: Tensor) -> bool:
    """Return whether rows are not the same: farther apart than rounding, and than a share of the way between samples.

    >>> rows = torch.eye(3) + 5
    >>> _differ(rows, rows + 1e-4), _differ(rows, rows.flip(0))
    (False, True)
    """
    if x.shape != y.shape:
        return True
    rounding = max(_ROUNDING, 4 * torch.finfo(x.dtype).eps)
    x, y = x.float(), y.float()
    apart = (x - x.mean(dim=0)).norm()
    return bool((x - y).norm() > torch.maximum(rounding * x.norm(), _SHARE * apart))
