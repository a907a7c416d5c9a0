"""Which layers see padding, and by how many tokens they are shorter: seen with fewer tokens, and with padding there."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from pnml.pytorch.calls import call_tree
from pnml.pytorch.channel_probe import outputs_of
from pnml.pytorch.head import attempt, run_on_copies
from pnml.pytorch.masks import mask_of_length
from pnml.pytorch.pooling import join
from pnml.pytorch.recording import record_layers
from pnml.pytorch.token_mask import (
    MASKS,
    declared_padding,
    is_lengths,
    padding_value,
    token_axis,
    token_mask,
    with_arguments,
)
from pnml.pytorch.trimming import trimmed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pnml.pytorch.calls import Node
    from pnml.pytorch.layers import Layer
    from pnml.pytorch.token_mask import MaskSource

    Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_ROUNDING = 1e-4  # of the norm, in float32


@torch.no_grad()
def which_see_padding(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    heads: Sequence[str],
    layers: Sequence[Layer],
    *,
    source: MaskSource | None = None,
    batch: Arguments | None = None,
) -> list[bool | None]:
    """Return of every layer whether its rows change where samples end in padding, and the embeddings do not.

    Some layers join or convolve tokens along with padding, and a mask of the model's own tokens says nothing of that.
    Others have padding that an unknown argument marks. Where nothing is known, the answer is None.

    Args:
        model: is run with about half of its tokens turned into padding, and without them; and without the ends of
            samples that may be padding.
        args: its positional arguments.
        kwargs: its keyword arguments.
        heads: the names of its last layers.
        layers: of the model.
        source: what says which tokens count, where no name of an argument does.
        batch: arguments with more samples, among which to look for some that end in padding.
    """
    mask = token_mask(model, args, kwargs, source)
    if not layers:
        return []
    probes = [] if mask is None else _probes(model, args, kwargs, mask, source)
    seen = [found for probe in probes if (found := probe.seen(heads, layers)) is not None]
    for long, short in () if seen else trimmed(*(batch or (args, kwargs))):
        found = _which_differ(*(_rows(model, given, heads, layers, source) for given in (short, long)))
        seen += [] if found is None else [found]
    return [any(one) for one in zip(*seen, strict=True)] if seen else [None] * len(layers)


@torch.no_grad()
def missing_tokens(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    token_axes: Mapping[Node, int],
    *,
    source: MaskSource | None = None,
) -> dict[Node, set[int]]:
    """Return how many tokens fewer than a model some calls return, where the model has about half of its own.

    After a convolution it is always the same number, after pooling it is not. It is 0 where the mask tells which tokens
    are left, as of sequences without their padding. Empty where the model takes no fewer.

    Args:
        model: is run with about half of its tokens, if there are such calls.
        args: its positional arguments.
        kwargs: its keyword arguments.
        token_axes: these calls, with the axis of the tokens in the output of each, which has three.
        source: what says which tokens count, where no name of an argument does.
    """
    mask = token_mask(model, args, kwargs, source) if token_axes else None
    found: dict[Node, set[int]] = {node: set() for node in token_axes}
    for probe in [] if mask is None else _probes(model, args, kwargs, mask, source):
        for node, output in probe.outputs(list(token_axes)).items():
            if output.ndim == 3:
                found[node].add(probe.missing(output.shape[token_axes[node]]))
    return found


def _probes(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], mask: Tensor, source: MaskSource | None
) -> list[_Probe]:
    """Return the ways to have about half of the tokens."""
    tried = product(_lengths(mask.shape[1]), (False, True))
    return [_Probe(model, args, kwargs, mask, source=source, kept=kept, is_left=left) for kept, left in tried]


def _lengths(tokens: int) -> set[int]:
    """Return about half as many tokens: an odd number, no multiple of a window, and one that is."""
    return {tokens // 2 | 1, max(1, tokens // 2 + 3) // 4 * 4}


class _Probe:
    """Some tokens of a batch, alone or with padding on one side of them."""

    def __init__(
        self,
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        mask: Tensor,
        *,
        source: MaskSource | None,
        kept: int,
        is_left: bool,
    ) -> None:
        self.model, self.mask, self.is_left = model, mask, is_left
        self.args, self.kwargs, self.source = args, kwargs, source
        ordered = mask.flip(1) if is_left else mask
        first = int((ordered.cumsum(dim=1) == 0).sum(dim=1).max())
        self.kept = max(first + 1, kept)

    def seen(self, heads: Sequence[str], layers: Sequence[Layer]) -> list[bool] | None:
        """Return which layers see the padding, None if the model itself does, or cannot be asked."""
        if self.kept >= self.mask.shape[1]:
            return None
        cut, padded = (
            _rows(self.model, self._arguments(is_cut=is_cut), heads, layers, self.source) for is_cut in (True, False)
        )
        if cut is None or padded is None:
            return None
        counting = self._cut(self.mask)
        for number, (x, y) in enumerate(zip(cut.entered, padded.entered, strict=True)):
            if x.shape[:2] == counting.shape and y.shape[:2] == self.mask.shape:
                cut.entered[number], padded.entered[number] = x[counting], self._cut(y)[counting]
        return _which_differ(cut, padded)

    def outputs(self, nodes: Sequence[Node]) -> dict[Node, Tensor]:
        """Return what calls return without the padding; nothing if the model cannot be asked."""
        if self.kept >= self.mask.shape[1]:
            return {}
        args, kwargs = self._arguments(is_cut=True)
        return attempt(lambda: outputs_of(partial(run_on_copies, self.model, args, kwargs), nodes)) or {}

    def missing(self, length: int) -> int:
        """Return how many tokens fewer there are than are left without the padding; 0 where the mask tells which."""
        is_told = mask_of_length(self.model, self._cut(self.mask), length) is not None
        return 0 if is_told else self.kept - length

    def _cut(self, x: Tensor, axis: int = 1) -> Tensor:
        return x.narrow(axis, x.shape[axis] - self.kept if self.is_left else 0, self.kept)

    def _arguments(self, *, is_cut: bool) -> Arguments:
        """Return the arguments of the model where tokens that are not kept are cut, or else are padding."""

        def end(name: str, x: Any) -> Any:
            if is_lengths(name, x):
                return self._cut(self.mask).sum(dim=1)
            if isinstance(x, Tensor) and self._has_tokens_first(x):
                return of_samples(name, x.transpose(0, 1)).transpose(0, 1)
            return of_samples(name, x)

        def of_samples(name: str, x: Any) -> Any:
            axis = token_axis(x, self.mask.shape)
            if axis is None:
                return x
            if is_cut:
                return self._cut(x, axis)
            padded = torch.full_like(x, self._padding(name, x))
            self._cut(padded, axis).copy_(self._cut(x, axis))
            return padded

        return with_arguments(end, self.model, self.args, self.kwargs)

    def _has_tokens_first(self, x: Tensor) -> bool:
        """Return whether an argument has its samples in the second axis, as the tokens may have."""
        known = self.source is not None and self.source.tokens_first
        return x.shape[:2] == self.mask.T.shape and (known or x.shape[:2] != self.mask.shape)

    def _padding(self, name: str, x: Tensor) -> float:
        """Return what stands for padding in an argument."""
        if name in MASKS:
            return padding_value(x, marks_padding=MASKS[name])
        if self.source is not None and name == self.source.argument:
            return padding_value(x, marks_padding=self.source.marks_padding)
        if self.source is not None and self.source.token is not None and not x.is_floating_point():
            return self.source.token
        token = declared_padding(self.model) if name == "input_ids" else None
        return 0 if token is None else token


class _Rows(NamedTuple):
    """What layers made of some samples in a forward pass, and what entered the heads."""

    layers: list[Tensor | None]
    entered: list[Tensor]


def _rows(
    model: nn.Module, given: Arguments, heads: Sequence[str], layers: Sequence[Layer], source: MaskSource | None
) -> _Rows | None:
    """Return the rows of layers in a forward pass, and what entered the heads; None where it cannot be asked."""
    args, kwargs = given
    with record_layers(model, layers, kwargs, args, source) as pooled:
        called = attempt(lambda: call_tree(model, args, kwargs, heads))
    if called is None or len(called[1]) < len(heads):  # another head may answer for fewer tokens
        return None
    return _Rows([None if parts is None else join(parts) for parts in pooled], called[1])


def _which_differ(short: _Rows | None, long: _Rows | None) -> list[bool] | None:
    """Return which layers have other rows with padding than without it; None where the embeddings have, too."""
    if short is None or long is None:
        return None
    slack = max(_ROUNDING, 2 * torch.finfo(short.entered[0].dtype).eps)
    if not all(_distance(x, y) <= slack for x, y in zip(short.entered, long.entered, strict=True)):
        return None
    pairs = zip(short.layers, long.layers, strict=True)
    return [x is None or y is None or not _distance(x, y) <= 3 * slack for x, y in pairs]


def _distance(x: Tensor, y: Tensor) -> float:
    """Return how far tensors are from one another, relative to their norm; infinity for other shapes."""
    if x.shape != y.shape:
        return torch.inf
    x, y = x.float(), y.float()
    return float((x - y).norm() / x.norm().clamp(min=torch.finfo(torch.float32).tiny))
