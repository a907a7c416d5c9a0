"""Whether a model's rows of a sample are its own: the same in another order, with fewer others, and without padding."""

from __future__ import annotations

import logging
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

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


def unsteady_layers(run: Run, outputs: Outputs, arguments: Arguments, counts: Tensor | None) -> set[int]:
    """Return the numbers of the layers that change with the order, the company or the padding of a sample.

    ``outputs`` are what ``run`` gave for a few samples. Where answers change, an :class:`UnstableModelWarning` says so.
    """
    count = sample_count(*arguments) or 0
    every = torch.arange(count)
    cases: list[tuple[Tensor, Arguments, str]] = []
    if count > 1:  # in another order and in other company at the same time
        half = every[: (count + 1) // 2].flip(0)
        cases.append((half, some_samples(*arguments, half), _DEPENDENT))
    if counts is not None:
        cases += _unpadded_cases(arguments, counts)
    plain = _rows_of(outputs, count)
    unsteady: set[int] = set()
    if plain is None:
        return unsteady
    for order, case, reason in cases:
        rows = _rows(run, case, len(order))
        if rows is None:
            continue
        if _differ(plain[0][order], rows[0]):
            again = _rows(run, some_samples(*arguments, every), count)
            is_random = again is None or _differ(plain[0], again[0])
            warnings.warn(_RANDOM if is_random else reason, UnstableModelWarning, stacklevel=8)
            return unsteady
        if reason == _DEPENDENT and _differ(plain[1][order], rows[1]):
            raise HeadNotFoundError(_REORDERED)
        pairs = zip(plain[2:], rows[2:], strict=True)
        unsteady |= {number for number, (x, y) in enumerate(pairs) if _differ(x[order], y)}
    return unsteady


def _unpadded_cases(arguments: Arguments, counts: Tensor) -> list[tuple[Tensor, Arguments, str]]:
    """Return, without its padding at the end, the sample with most of it and the one with least that has any."""
    width = counts.shape[1]
    lengths = (counts * torch.arange(1, width + 1, device=counts.device)).amax(dim=1).tolist()
    padded = sorted((length, number) for number, length in enumerate(lengths) if length < width)
    cases = []
    for length, number in dict.fromkeys([*padded[:1], *padded[-1:]]):
        order = torch.tensor([number])
        cut = partial(_cut, width=width, length=length)
        cases.append((order, with_tensors(cut, some_samples(*arguments, order)), _PADDED))
    return cases


def _cut(x: Tensor, width: int, length: int) -> Tensor:
    """Return an argument of one sample without the padding after so many tokens."""
    if x.shape[:2] == (1, width):
        return x[:, :length]
    is_square = x.ndim > 2 and x.shape[0] == 1 and x.shape[-1] == width
    return x[..., :length] if is_square and x.shape[1] == 1 else x


def _rows(run: Run, arguments: Arguments, count: int) -> list[Tensor] | None:
    """Return what a run gives of so many samples; None where the model does not take them, or gives other counts."""
    try:
        return _rows_of(run(*arguments), count)
    except (HeadNotFoundError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a model raises for fewer samples or tokens
        _LOG.debug("steadiness was not asked of %d samples: %s", count, error)
        return None


def _rows_of(outputs: Outputs, count: int) -> list[Tensor] | None:
    """Return logits, embeddings and features of so many samples; None where there is another number of rows."""
    rows = [outputs.logits, outputs.embeddings, *outputs.features]
    if outputs.places is not None:
        if outputs.places[0] != count:
            return None
        if outputs.counts is not None:
            rows = [torch.where(outputs.counts[:, None], x, 0) for x in rows]
        rows = [x.reshape(count, -1) for x in rows]
    return rows if all(len(x) == count for x in rows) else None


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
    x = x.nan_to_num(0, 0, 0).double()
    y = y.nan_to_num(0, 0, 0).double()
    return bool((x - y).abs().max() > rounding * x.abs().max().clamp(min=1e-30)) if x.numel() else False
