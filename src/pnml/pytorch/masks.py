"""Which tokens of a model's arguments count: by an argument whose name is in use, or as the user declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

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


def find_mask(model: nn.Module, given: dict[str, Any], declared: DeclaredMask) -> Mask | None:
    """Return what says which tokens count; raise ``ValueError`` for what may, but nobody said so.

    Args:
        model: a classifier.
        given: its arguments by name.
        declared: "auto", the name of an argument, a function of the arguments, or None for no mask.
    """
    if declared is None:
        return None
    if callable(declared):
        return Mask("function")
    if declared != "auto":
        value = given.get(declared)
        if not isinstance(value, Tensor):
            raise ValueError(f"mask={declared!r} is no tensor among the model's arguments, which are {list(given)}")
        return Mask("lengths" if value.ndim == 1 else _NAMES.get(declared, "counts"), declared)
    named = [Mask(kind, name) for name, kind in _NAMES.items() if _is_of_kind(given.get(name), kind)]
    if named:
        return named[0]
    for name, value in given.items():
        if _looks_like_mask(name, given):
            raise ValueError(
                f"the argument {name!r} of shape {tuple(value.shape)} holds zeros and ones: if it marks the "
                f"tokens that count, say pnml.guard(model, mask={name!r}); if it marks something else, say mask=None"
            )
    token, tokens = _padding_token(model), _first_input(given)
    is_text = tokens is not None and tokens.ndim == 2 and not tokens.is_floating_point()
    return Mask("token", token=token) if token is not None and is_text else None


def counts_of(mask: Mask, given: dict[str, Any]) -> Tensor | None:
    """Return which tokens count, (n, T) booleans, None where the arguments do not say so this time.

    Args:
        mask: what says it, which is no function of the user's.
        given: the arguments of the model by name.
    """
    if mask.kind == "token":
        tokens = _first_input(given)
        return None if tokens is None or tokens.ndim != 2 else _or_all(tokens != mask.token)
    value = given.get(mask.argument)
    if value is None or not _is_of_kind(value, mask.kind):
        return None
    if mask.kind == "lengths":
        return _within(value, _first_input(given))
    value = value.reshape(value.shape[0], value.shape[-1])
    is_added = value.is_floating_point() and bool((value < 0).any())  # to attention: 0 for tokens that count
    return _or_all(value == 0 if is_added or mask.kind == "padding" else value != 0)


def counts_by(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return which tokens count, (n, T) booleans, by a function of the user's."""
    if not callable(function):
        raise ValueError(  # noqa: TRY004 - of the guard
            "it was fitted with a function as mask=: pass that again, pnml.guard(model, mask=...)"
        )
    counts = function(*args, **kwargs)
    if not isinstance(counts, Tensor) or counts.ndim != 2 or counts.dtype != torch.bool:
        raise ValueError("mask= must return booleans of shape (n, T), True for tokens that count")
    return _or_all(counts)


def _within(lengths: Tensor, first: Tensor | None) -> Tensor | None:
    """Return which tokens of the first input are within these lengths (n,), whether samples or tokens come first."""
    if first is None:
        return None
    axis = 0 if first.shape[0] != lengths.shape[0] == first.shape[1] else 1
    return _or_all(torch.arange(first.shape[axis], device=lengths.device) < lengths[:, None])


def _or_all(counts: Tensor) -> Tensor:
    """Return which tokens count; of a sample without any all do, so that it has a mean."""
    return counts | ~counts.any(dim=1, keepdim=True)


def _is_of_kind(value: Any, kind: str) -> bool:
    if not isinstance(value, Tensor):
        return False
    if kind == "lengths":
        return value.ndim == 1 and not value.is_floating_point()
    return value.ndim >= 2 and all(size == 1 for size in value.shape[1:-1])


def _looks_like_mask(name: str, given: dict[str, Any]) -> bool:
    """Return whether an argument has a mask's shape and values, beside another one that has its tokens."""
    value = given[name]
    first = _first_input(given)
    if name in _NO_MASKS or not isinstance(value, Tensor) or value.ndim != 2 or first is None or value is first:
        return False
    if value.shape != first.shape[:2]:
        return False
    return value.dtype == torch.bool or bool(((value == 0) | (value == 1)).all() & value.any())


def _first_input(given: dict[str, Any]) -> Tensor | None:
    """Return the first tensor of a model's arguments that is not of one number a sample, as lengths are."""
    return next((x for x in given.values() if isinstance(x, Tensor) and x.ndim > 1), None)


def _padding_token(model: nn.Module) -> int | None:
    """Return which token a model declares to be padding, ``nn.Embedding(padding_idx=...)``, None if none."""
    embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    return next((module.padding_idx for module in embeddings if module.padding_idx is not None), None)
