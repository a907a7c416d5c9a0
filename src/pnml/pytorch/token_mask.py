"""Which tokens of a model's arguments count: by a mask, by lengths, or by the token that stands for padding."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from pnml.pytorch.head import is_dict, with_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MASKS = {
    "attention_mask": False,
    "padding_mask": True,
    "src_key_padding_mask": True,
    "pixel_attention_mask": False,
}
"""Names of arguments that say which tokens count, and whether True marks those that do not."""


class MaskSource(NamedTuple):
    """What says which tokens count, where no name of an argument tells; see :mod:`pnml.pytorch.mask_search`.

    Attributes:
        argument: the name of an argument that does, empty if none does.
        marks_padding: whether True in it marks tokens that do not count.
        token: which token stands for padding, where the tokens themselves tell.
        tokens_first: whether these have their samples in the second axis, (T, n).
        length_axis: which axis of the input lengths are those of, as 2 of (n, C, T); 0 for that of the tokens, and -1
            for none, as where sound became frames and its lengths did not.
    """

    argument: str = ""
    marks_padding: bool = False
    token: int | None = None
    tokens_first: bool = False
    length_axis: int = 0

    def mask(self, given: dict[str, Any]) -> Tensor | None:
        """Return which tokens count, (n, T), None if the arguments do not say so.

        Args:
            given: the arguments of the model, by name.
        """
        if self.token is not None:
            tokens = tokens_of(given)
            if tokens is None:
                return None
            return (tokens.T if self.tokens_first else tokens) != self.token
        return _as_mask(given.get(self.argument), marks_padding=self.marks_padding) if self.argument else None


def token_mask(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], source: MaskSource | None = None
) -> Tensor | None:
    """Return which tokens count, (n, T), from the arguments of a model.

    Args:
        model: any.
        args: its positional arguments.
        kwargs: its keyword arguments.
        source: what says so where names do not.
    """
    given = named_arguments(model, args, kwargs)
    for name, marks_padding in MASKS.items():
        mask = _as_mask(given.get(name), marks_padding=marks_padding)
        if mask is not None:
            return mask
    lengths, (_, first) = lengths_of(given), first_of(given)
    known = 0 if source is None else source.length_axis
    if lengths is not None and first is not None and lengths.shape[0] in first.shape[:2] and known >= 0:
        axis = known if 0 < known < first.ndim else int(first.shape[0] == lengths.shape[0])
        return torch.arange(first.shape[axis], device=lengths.device) < lengths[:, None]
    return None if source is None else source.mask(given)


def named_arguments(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a model by name; one that comes first and alone needs none, which would take time.

    Of a dict that a model takes whole it is what that holds.
    """
    if takes_dict(args):
        return {**args[0], **kwargs}
    names = positional_names(model, len(args)) if len(args) > 1 else [""]
    return dict(zip(names, args, strict=False)) | kwargs


def with_arguments(
    change: Callable[[str, Any], Any], model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a model with each changed, ``change(name, argument)``; of a dict what that holds."""
    by_name = {name: change(name, x) for name, x in kwargs.items()}
    if takes_dict(args):
        return (with_entries(args[0], {name: change(name, x) for name, x in args[0].items()}),), by_name
    names = positional_names(model, len(args))
    return tuple(change(name, x) for name, x in zip(names, args, strict=True)), by_name


def takes_dict(args: tuple[Any, ...]) -> bool:
    """Return whether a model takes a dict of inputs as its only positional argument."""
    return len(args) == 1 and is_dict(args[0])


def positional_names(model: nn.Module, count: int) -> list[str]:
    """Return the names of so many positional arguments of a model; those that it takes as ``*args`` are numbered.

    >>> positional_names(nn.Linear(2, 2), 1)
    ['input']
    """
    kinds = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
    named = [name for name, one in signature(model.forward).parameters.items() if one.kind in kinds]
    return [*named, *(f"args[{number}]" for number in range(count))][:count]


def tokens_of(given: dict[str, Any]) -> Tensor | None:
    """Return the first tensor of a model's arguments if it holds numbers of tokens, (n, T)."""
    _, first = first_of(given)
    is_whole = first is not None and first.dtype in {torch.int64, torch.int32}
    return first if is_whole and first is not None and first.ndim == 2 else None


def first_of(given: dict[str, Any]) -> tuple[str, Tensor | None]:
    """Return the first tensor of a model's arguments that is not of one number a sample, as labels are, and its name.

    >>> first_of({"labels": torch.zeros(2), "words": torch.ones(2, 1)})
    ('words', tensor([[1.],
            [1.]]))
    """
    return next(((name, x) for name, x in given.items() if isinstance(x, Tensor) and x.ndim > 1), ("", None))


def declared_padding(model: nn.Module) -> int | None:
    """Return which token stands for padding by a model's configuration or its embeddings, None where they do not agree.

    >>> declared_padding(nn.Sequential(nn.Embedding(9, 2, padding_idx=3)))
    3
    """
    token = getattr(getattr(model, "config", None), "pad_token_id", None)
    if isinstance(token, int):
        return token
    declared = {module.padding_idx for module in model.modules() if isinstance(module, nn.Embedding)} - {None}
    return declared.pop() if len(declared) == 1 else None


def lengths_of(given: dict[str, Any]) -> Tensor | None:
    """Return the first argument that says how many tokens each sample has, None if there is none."""
    return next((x for name, x in given.items() if is_lengths(name, x)), None)


def is_lengths(name: str, value: Any) -> bool:
    """Return whether an argument says how many tokens each sample has: ``lengths``, ``seq_lens`` and the like."""
    named = name.lower().endswith(("lengths", "length", "lens", "len"))
    return named and isinstance(value, Tensor) and value.ndim == 1 and not value.is_floating_point()


def token_axis(value: Any, shape: Sequence[int]) -> int | None:
    """Return the axis of the tokens in an argument for (n, T) of them, None if it has none.

    It is the second one, or else the last one: of sound (n, C, T), or of a mask that attention takes.

    >>> [token_axis(torch.ones(shape), (2, 5)) for shape in ((2, 5, 3), (2, 3, 5), (2, 1, 1, 5), (2, 3))]
    [1, 2, 3, None]
    """
    if not isinstance(value, Tensor) or value.ndim < 2:
        return None
    if tuple(value.shape[:2]) == tuple(shape):
        return 1
    return value.ndim - 1 if (value.shape[0], value.shape[-1]) == tuple(shape) else None


def padding_value(mask: Tensor, *, marks_padding: bool) -> float:
    """Return what stands for padding in a mask: the least number of one that is added to attention."""
    is_added = mask.is_floating_point() and bool((mask < 0).any())
    return float(mask.min()) if is_added else int(marks_padding)


def _as_mask(value: Any, *, marks_padding: bool) -> Tensor | None:
    if not isinstance(value, Tensor) or value.ndim < 2 or any(size != 1 for size in value.shape[1:-1]):
        return None
    value = value.reshape(value.shape[0], value.shape[-1])
    counts: Tensor = value == 0 if marks_padding else value != 0
    if marks_padding or not value.is_floating_point():
        return counts
    is_added = ~(value > 0).any(dim=1, keepdim=True)  # to attention, where 0 counts: each sample tells by itself
    return torch.where(is_added, value == 0, counts)
