"""Whether a model's rows of a sample are its own: the same in another order, with fewer others, and without padding."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from pnml.pytorch.batches import sample_count, some_samples
from pnml.pytorch.head import HeadNotFoundError
from pnml.pytorch.models import with_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.pytorch.batches import Arguments
    from pnml.pytorch.recording import Outputs

    Run = Callable[[tuple[Any, ...], dict[str, Any]], Outputs]

_LOG = logging.getLogger(__name__)
_ROUNDING = 3e-3  # of the largest number, in float32: batches of other sizes may be computed in another way
_ROUNDING_64 = 1e-6

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
_PADDED = (
    "the model's answer for a sample depends on its padding, and so do the regrets. Let the model leave out the tokens "
    "that its mask leaves out, in attention, in means and in normalisations; or say mask=None, if there is no padding"
)
_REORDERED = (
    "what enters the head is in another order than the answers: the model sorts its samples and puts them back after "
    "the head. Put them back before it"
)


class UnstableModelWarning(UserWarning):
    """What a model makes of a sample depends on chance, on the other samples of its batch, or on padding."""


class _Rows(NamedTuple):
    logits: Tensor
    embeddings: Tensor
    layers: list[Tensor]


def unsteady_layers(run: Run, outputs: Outputs, given: Arguments, counts: Tensor | None) -> set[int]:
    """Return the numbers of the layers that change with the order, the company or the padding of a sample.

    Where answers change, an :class:`UnstableModelWarning` says so.

    Args:
        run: returns what the model and its layers make of arguments.
        outputs: what they made of a few samples.
        given: the arguments with these samples.
        counts: which of their tokens count, (n, T), None where nothing says so.
    """
    args, kwargs = given
    count = sample_count(args, kwargs) or 0
    every = torch.arange(count)
    cases: list[tuple[Tensor, Arguments, str]] = []
    if count > 1:  # in another order and in other company at the same time
        half = every[: (count + 1) // 2].flip(0)
        cases.append((half, some_samples(args, kwargs, half), _DEPENDENT))
    if counts is not None:
        cases += [(number, _unpadded(args, kwargs, number, counts), _PADDED) for number in _most_padded(counts)]
    plain = _rows_of(outputs, count)
    unsteady: set[int] = set()
    if plain is None:
        return unsteady
    for order, case, reason in cases:
        rows = _rows(run, *case, len(order))
        if rows is None:
            continue
        if _differ(plain.logits[order], rows.logits):
            again = _rows(run, *some_samples(args, kwargs, every), count)
            is_random = again is None or _differ(plain.logits, again.logits)
            warnings.warn(_RANDOM if is_random else reason, UnstableModelWarning, stacklevel=6)
            return unsteady
        if reason == _DEPENDENT and _differ(plain.embeddings[order], rows.embeddings):
            raise HeadNotFoundError(_REORDERED)
        pairs = zip(plain.layers, rows.layers, strict=True)
        unsteady |= {number for number, (x, y) in enumerate(pairs) if _differ(x[order], y)}
    return unsteady


def _most_padded(counts: Tensor) -> list[Tensor]:
    """Return the numbers of the sample with most padding and of the one with least that has any, at the end."""
    lengths = _lengths(counts)
    padded = [number for number in lengths.argsort().tolist() if lengths[number] < counts.shape[1]]
    return [torch.tensor([number]) for number in dict.fromkeys([*padded[:1], *padded[-1:]])]


def _lengths(counts: Tensor) -> Tensor:
    """Return after how many tokens all others are padding, (n,)."""
    numbers = torch.arange(1, counts.shape[1] + 1, device=counts.device)
    return (counts * numbers).amax(dim=1).cpu()


def _unpadded(args: tuple[Any, ...], kwargs: dict[str, Any], number: Tensor, counts: Tensor) -> Arguments:
    """Return the arguments of one sample alone, without the padding at its end."""
    length, shape = int(_lengths(counts)[number]), (1, counts.shape[1])

    def cut(x: Tensor) -> Tensor:
        if x.shape[:2] == shape:
            return x[:, :length]
        is_square = x.ndim > 2 and x.shape[0] == 1 and x.shape[-1] == shape[1]
        return x[..., :length] if is_square and x.shape[1] == 1 else x

    one: Arguments = with_tensors(cut, some_samples(args, kwargs, number))
    return one


def _rows(run: Run, args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> _Rows | None:
    """Return what a run gives of so many samples; None where the model does not take them, or gives other counts."""
    try:
        outputs = run(args, kwargs)
    except HeadNotFoundError:
        raise
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a model raises for fewer samples or tokens
        _LOG.debug("steadiness was not asked of %d samples: %s", count, error)
        return None
    return _rows_of(outputs, count)


def _rows_of(outputs: Outputs, count: int) -> _Rows | None:
    """Return what is compared of so many samples; None where there is another number of rows."""
    rows = [outputs.logits, outputs.embeddings, *outputs.features]
    if outputs.places is not None:
        if outputs.places[0] != count:
            return None
        if outputs.counts is not None:
            rows = [torch.where(outputs.counts[:, None], x, 0) for x in rows]
        rows = [x.reshape(count, -1) for x in rows]
    if any(len(x) != count for x in rows):
        return None
    logits, embeddings, *layers = rows
    return _Rows(logits, embeddings, layers)


def _differ(x: Tensor, y: Tensor) -> bool:
    """Return whether rows are farther apart than by rounding.

    >>> rows = torch.eye(3) + 5
    >>> _differ(rows, rows + 1e-4), _differ(rows, rows.flip(0))
    (False, True)
    """
    if x.shape != y.shape:  # answers for every token, of other lengths
        return False
    eps = torch.finfo(x.dtype).eps
    rounding = _ROUNDING_64 if eps < 1e-12 else max(_ROUNDING, 8 * eps)
    x, y = x.nan_to_num(0, 0, 0).double(), y.nan_to_num(0, 0, 0).double()
    return bool((x - y).abs().max() > rounding * x.abs().max().clamp(min=1e-30)) if x.numel() else False
