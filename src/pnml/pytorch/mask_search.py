"""Find out from a model itself which tokens it leaves out, where no name of an argument tells.

Models of one's own call their mask what they like, mark tokens that count by True or by False, or compare the tokens
with the one that stands for padding. If it is not declared which one that is, the model is asked: tokens that it leaves
out may be others, or may be missing, and its answers stay the same.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pnml.pytorch.call_inputs import few_samples
from pnml.pytorch.head import attempt, run_on_copies, unfused_attention, with_entries
from pnml.pytorch.token_mask import (
    MaskSource,
    declared_padding,
    first_of,
    is_lengths,
    lengths_of,
    named_arguments,
    padding_value,
    takes_dict,
    token_axis,
    token_mask,
    tokens_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FEWEST = 8  # tokens, half of which are kept; shorter samples are repeated
_ROUNDING = 1e-4  # of the norm, in float32
_ADDED = -1000  # to attention, where a token does not count; most add more


def find_mask_source(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], logits: Callable[[Any], Tensor]
) -> MaskSource | None:
    """Return what says which tokens of a model count, None where its arguments do by name, and where nothing does.

    Args:
        model: is run a few times on three samples, if it takes tokens.
        args: its positional arguments.
        kwargs: its keyword arguments.
        logits: takes the logits out of what it returns.
    """
    given = named_arguments(model, args, kwargs)
    (_, first), lengths = first_of(given), lengths_of(given)
    if first is None or not first.numel():
        return None
    asked = _Asked(model, *few_samples(args, kwargs), logits)
    if lengths is not None and len(lengths) == len(first):
        axis = asked.length_axis()
        return MaskSource(length_axis=axis) if axis != 1 else None
    if first.ndim > 3 or token_mask(model, args, kwargs) is not None:
        return None
    known = None if tokens_of(asked.given) is None else declared_padding(model)
    tokens = _paddings(first) if tokens_of(asked.given) is not None and known is None else []
    found = next((source for source in (*_masks(asked), *tokens) if asked.confirms(source)), None)
    if found is None and first.ndim == 3:
        asked = _Asked(model, *few_samples(args, kwargs), logits, axis=2)
        found = next(filter(asked.confirms, _masks(asked)), None)
    if found is not None or known is None:
        return found
    whole = _Asked(model, args, kwargs, logits)
    return MaskSource(token=known, tokens_first=asked.has_tokens_first() or whole.has_tokens_first())


def _masks(asked: _Asked) -> Iterator[MaskSource]:
    """Yield arguments that may be masks: after the first, of as many samples and tokens, of zeros and one number more.

    That is 1, or a large negative one where the mask is added to attention.
    """
    for name, x in asked.given.items():
        fits = name != asked.first and token_axis(x, asked.shape) is not None and x.numel() == math.prod(asked.shape)
        if fits and bool(((x == 0) | (x == 1) | (x < _ADDED)).all()):
            yield from (MaskSource(name, marks_padding) for marks_padding in (False, True))


def _paddings(tokens: Tensor) -> list[MaskSource]:
    """Return tokens that may stand for padding: 0, and the one that most samples end in."""
    return [MaskSource(token=token) for token in dict.fromkeys((0, int(tokens[:, -1].mode().values)))]


class _Asked:
    """A model, and a few samples of which the first half of the tokens is kept as it is.

    Attributes:
        given: its arguments by name.
        first: the name of the tokens.
        shape: how many samples and tokens there are, these along the second axis of the input or another.
    """

    def __init__(
        self,
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        logits: Callable[[Any], Tensor],
        *,
        axis: int = 1,
    ) -> None:
        self.model, self._logits, self._whole = model, logits, args[0] if takes_dict(args) else None
        self._positional = len(args if self._whole is None else self._whole)
        self.given = named_arguments(model, args, kwargs)
        self.first, _ = first_of(self.given)
        shape = self._tokens.shape[0], self._tokens.shape[axis]
        if shape[1] < _FEWEST and lengths_of(self.given) is None:
            times = -(-_FEWEST // shape[1])
            self.given = {
                name: x if (along := token_axis(x, shape)) is None else torch.cat([x] * times, dim=along)
                for name, x in self.given.items()
            }
        self.shape = shape[0], self._tokens.shape[axis]
        self._kept = self.shape[1] // 2

    @property
    def _tokens(self) -> Tensor:
        tokens: Tensor = self.given[self.first]
        return tokens

    @torch.no_grad()
    def confirms(self, source: MaskSource) -> bool:
        """Return whether a source says which tokens the model leaves out."""
        asked = partial(self._has_mask, source) if source.token is None else partial(self._has_padding, source.token)
        return attempt(asked) or False

    @torch.no_grad()
    def has_tokens_first(self) -> bool:
        """Return whether there is an answer for every entry along the second axis of the tokens, not the first."""
        answers = attempt(lambda: len(self._answer(self.given)))
        return answers == self.shape[1] != self.shape[0]

    @torch.no_grad()
    def length_axis(self) -> int:
        """Return which axis of the input the lengths are those of: one that is long enough, 1 if unsure, or -1."""
        lengths, shape = lengths_of(self.given), self._tokens.shape
        long = [a for a in range(1, len(shape)) if lengths is not None and shape[a] >= int(lengths.max())]
        ends = [a for a in long if len(long) > 1 and attempt(partial(self._ends_along, a))]
        return (ends or ([1] if 1 in long else long[-1:]) or [-1])[0]

    def _ends_along(self, axis: int) -> bool:
        """Return whether numbers along an axis of the input may be others from half of the lengths on."""
        shorter = {name: (x + 1) // 2 if is_lengths(name, x) else x for name, x in self.given.items()}
        lengths, x = lengths_of(shorter), self._tokens
        assert lengths is not None  # noqa: S101 - seen by the caller
        is_kept = torch.arange(x.shape[axis], device=x.device) < lengths[:, None].to(x.device)
        changed = torch.where(is_kept.reshape([x.shape[a] if a in {0, axis} else 1 for a in range(x.ndim)]), x, 1 - x)
        return _are_same(self._answer(shorter), self._answer({**shorter, self.first: changed}))

    def _has_mask(self, source: MaskSource) -> bool:
        """Return whether tokens that a mask leaves out may be others, and tokens that count may not."""
        mask = self.given[source.argument]
        marks = {padding_value(mask, marks_padding=source.marks_padding)}
        if source.marks_padding and mask.is_floating_point() and not bool(mask.any()):
            marks.add(torch.finfo(mask.dtype).min)
        return any(self._leaves_out(source, mask, mark) for mark in marks)

    def _leaves_out(self, source: MaskSource, mask: Tensor, mark: float) -> bool:
        counting = torch.full_like(mask, not source.marks_padding)
        masks = self._ending_in(counting, mark), counting
        tokens = self._tokens, self._ending_in(self._tokens, _others(self._left(self._tokens)))
        left_out, other, counted, another = (
            self._answer({**self.given, self.first: x, source.argument: mask}) for mask, x in product(masks, tokens)
        )
        return _are_same(left_out, other) and not _are_same(counted, another)

    def _has_padding(self, token: int) -> bool:
        """Return whether a token may be added to samples, and their own first one may not."""
        short, padded, longer = (
            self._answer({name: self._cut(x) for name, x in self.given.items()}),
            self._answer({**self.given, self.first: self._ending_in(self._tokens, token)}),
            self._answer({**self.given, self.first: self._ending_in(self._tokens, self._tokens[:, :1])}),
        )
        return _are_same(short, padded) and not _are_same(short, longer)

    def _answer(self, given: dict[str, Any]) -> Tensor:
        """Return the logits; where every token has some, of those that are kept."""
        entries = list(given.items())
        held, by_name = dict(entries[: self._positional]), dict(entries[self._positional :])
        args = tuple(held.values()) if self._whole is None else (with_entries(self._whole, held),)
        with unfused_attention():
            found = self._logits(run_on_copies(self.model, args, by_name))
        return self._cut(found) if found.ndim == 3 else found

    def _cut(self, x: Any) -> Any:
        axis = token_axis(x, self.shape)
        return x if axis is None else x.narrow(axis, 0, self._kept)

    def _ending_in(self, x: Tensor, ending: Tensor | float) -> Tensor:
        x = x.clone()
        self._left(x).copy_(torch.as_tensor(ending))
        return x

    def _left(self, x: Tensor) -> Tensor:
        """Return the tokens that are not kept."""
        return x.narrow(token_axis(x, self.shape) or 1, self._kept, self.shape[1] - self._kept)


def _others(tokens: Tensor) -> Tensor:
    """Return other tokens than these: of numbers in a vocabulary one that is among them."""
    if tokens.is_floating_point():
        return 1 - tokens
    one, other = tokens.amin(), tokens.amax()
    return torch.where(tokens == one, other, one)


def _are_same(x: Tensor, y: Tensor) -> bool:
    if x.shape != y.shape:
        return False
    slack = max(_ROUNDING, 2 * torch.finfo(x.dtype).eps)
    x, y = x.float(), y.float()
    return bool((x - y).norm() <= slack * x.norm())
