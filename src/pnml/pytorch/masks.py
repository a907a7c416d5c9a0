"""Which tokens of a model's arguments count: by an argument whose name is in use, or as the user declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pnml.pytorch.batches import named_arguments
from pnml.pytorch.contract import Mask

if TYPE_CHECKING:
    from collections.abc import Callable

    DeclaredMask = str | Callable[..., Tensor] | None

_NAMES = {
    "attention_mask": "counts",
    "mask": "counts",
    "key_padding_mask": "padding",
    "src_key_padding_mask": "padding",
    "padding_mask": "padding",
    "lengths": "lengths",
}
"""Names of arguments in use, and what they hold."""

_NO_MASKS = {"token_type_ids", "segment_ids", "position_ids", "special_tokens_mask", "global_attention_mask"}
"""Names in use of arguments (n, T) of zeros and ones that say something else of a token."""


def find_mask(model: nn.Module, arguments: dict[str, Any], declared: DeclaredMask) -> Mask | None:
    """Return what says which tokens count; raise ``ValueError`` for what may, but nobody said so."""
    if declared is None:
        return None
    if callable(declared):
        return Mask("function")
    if declared != "auto":
        value = arguments.get(declared)
        if not isinstance(value, Tensor):
            raise ValueError(f"mask={declared!r} is no tensor among the model's arguments, which are {list(arguments)}")
        return Mask("lengths" if value.ndim == 1 else _NAMES.get(declared, "counts"), declared)
    for name, kind in _NAMES.items():
        if _is_of_kind(arguments.get(name), kind):
            return Mask(kind, name)
    tokens = _first_input(arguments)
    if tokens is None:
        return None
    for name, value in arguments.items():
        if value is not tokens and name not in _NO_MASKS and _looks_like_mask(value, tokens):
            raise ValueError(
                f"the argument {name!r} of shape {tuple(value.shape)} holds zeros and ones: if it marks the "
                f"tokens that count, say pnml.guard(model, mask={name!r}); if it marks something else, say mask=None"
            )
    embeddings = (module for module in model.modules() if isinstance(module, nn.Embedding))
    token = next((module.padding_idx for module in embeddings if module.padding_idx is not None), None)
    is_text = tokens.ndim == 2 and not tokens.is_floating_point()
    return Mask("token", token=token) if token is not None and is_text else None


def counts_of(
    mask: Mask | None, declared: DeclaredMask, names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Tensor | None:
    """Return which tokens count, (n, T) booleans, None where the arguments do not say so this time.

    ``names`` are those of the model's positional arguments; what is ``declared`` may be a function of all.
    """
    if mask is None:
        return None
    if mask.kind == "function":
        counts: Tensor | None = _counts_by(declared, args, kwargs)
    else:
        counts = _counts_in(named_arguments(names, args, kwargs), mask)
    # Of a sample without tokens that count all do, so that it has a mean.
    return None if counts is None else counts | ~counts.any(dim=1, keepdim=True)


def _counts_in(arguments: dict[str, Any], mask: Mask) -> Tensor | None:
    tokens = _first_input(arguments)
    if mask.kind == "token":
        return tokens.ne(mask.token) if tokens is not None and tokens.ndim == 2 else None
    value = arguments.get(mask.argument)
    if value is None or not _is_of_kind(value, mask.kind):
        return None
    if mask.kind != "lengths":
        value = value.reshape(value.shape[0], value.shape[-1])
        is_added = value.is_floating_point() and bool((value < 0).any())  # to attention: 0 for tokens that count
        marks_padding = is_added or mask.kind == "padding"
        return torch.eq(value, 0) if marks_padding else torch.ne(value, 0)
    if tokens is None:
        return None
    axis = 0 if tokens.shape[0] != value.shape[0] == tokens.shape[1] else 1  # tokens may come before samples
    return torch.lt(torch.arange(tokens.shape[axis], device=value.device), value[:, None])


def _counts_by(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    if not callable(function):
        raise ValueError(  # noqa: TRY004 - of the guard
            "it was fitted with a function as mask=: pass that again, pnml.guard(model, mask=...)"
        )
    counts = function(*args, **kwargs)
    if not isinstance(counts, Tensor) or counts.ndim != 2 or counts.dtype != torch.bool:
        raise ValueError("mask= must return booleans of shape (n, T), True for tokens that count")
    return counts


def _is_of_kind(value: Any, kind: str) -> bool:
    if not isinstance(value, Tensor):
        return False
    if kind == "lengths":
        return value.ndim == 1 and not value.is_floating_point()
    return value.ndim >= 2 and all(size == 1 for size in value.shape[1:-1])


def _looks_like_mask(value: Any, tokens: Tensor) -> bool:
    """Return whether an argument has a mask's shape and values, beside the one that has its tokens."""
    if not isinstance(value, Tensor) or value.ndim != 2 or value.shape != tokens.shape[:2]:
        return False
    return value.dtype == torch.bool or bool(((value == 0) | (value == 1)).all() & value.any())


def _first_input(arguments: dict[str, Any]) -> Tensor | None:
    """Return the first tensor of a model's arguments that is not of one number a sample, as lengths are."""
    return next((x for x in arguments.values() if isinstance(x, Tensor) and x.ndim > 1), None)
