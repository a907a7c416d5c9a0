"""The arguments of one call of a model: how many samples they hold, and what is said when they are no batch."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from pnml.pytorch.batches import AS_TENSOR, device_of
from pnml.pytorch.head import tensors_in, with_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pnml.pytorch.batches import Arguments

_MADE = 5  # times as many samples, of one or two


def first_input(args: tuple[Any, ...], kwargs: dict[str, Any], *, least: int = 1) -> Tensor | None:
    """Return the first tensor in the arguments of a model that has so many axes or more, None if there is none."""
    return next((x for x in tensors_in((args, kwargs)) if x.ndim >= least), None)


def sample_count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Return how many samples the arguments of a model hold: the length of the first tensor, None if there is none."""
    first = first_input(args, kwargs)
    return None if first is None else len(first)


def input_ndim(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Return how many axes the first tensor among the arguments of a model has, None if there is none."""
    first = first_input(args, kwargs)
    return None if first is None else first.ndim


def few_samples(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with three samples: few sequences have as many tokens, so that no axis is mistaken for another.

    Samples are repeated where there are fewer.
    """
    count = sample_count(args, kwargs) or 0

    def some(x: Tensor) -> Tensor:
        return x[torch.arange(3) % count] if x.ndim and len(x) == count else x

    few: Arguments = with_tensors(some, (args, kwargs))
    return few


def enough_samples(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Return arguments with more samples, where there are one or two: the first input of others is reversed, shifted.

    >>> enough_samples((torch.arange(3)[None],), {})[0][0].tolist()
    [[0, 1, 2], [2, 1, 0], [0, 2, 1], [1, 0, 2], [2, 1, 0], [0, 2, 1]]
    """
    first = first_input(args, kwargs, least=2)
    if first is None or len(first) not in {1, 2}:
        return args, kwargs

    def more(x: Tensor) -> Tensor:
        if not x.ndim or len(x) != len(first):
            return x
        return torch.cat([x, *(x.flip(-1).roll(steps, -1) if x is first else x for steps in range(_MADE))])

    enough: Arguments = with_tensors(more, (args, kwargs))
    return enough


def empty_rows(model: nn.Module, widths: Sequence[int]) -> list[Tensor]:
    """Return the embeddings and features of no samples, as a model would give them."""
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    return [torch.empty(0, width, dtype=dtype, device=device_of(model)) for width in widths]


@contextmanager
def explained_errors(args: tuple[Any, ...], kwargs: dict[str, Any], fitted_ndim: int | None) -> Iterator[None]:
    """Say what to pass instead where a model fails on arguments that are no batch of inputs.

    Args:
        args: the positional arguments of the call.
        kwargs: the keyword arguments.
        fitted_ndim: how many axes the first input had when the guard was fitted, None if that is not known.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        if advice := _advice(args, kwargs, fitted_ndim):
            raise ValueError(f"the guard was called with {advice}") from error
        raise


def _advice(args: tuple[Any, ...], kwargs: dict[str, Any], fitted_ndim: int | None) -> str | None:
    first = first_input(args, kwargs)
    if args and not isinstance(args[0], Tensor):
        return _advice_for(args[0])
    if first is not None and fitted_ndim is not None and first.ndim == fitted_ndim - 1:
        axes = ", ".join(["1", *map(str, first.shape)])
        return f"an input of shape {tuple(first.shape)}, without the axis of samples: pass x[None], of shape ({axes})"
    if first is not None and fitted_ndim is None and first.ndim in {1, 3}:
        return f"an input of shape {tuple(first.shape)}: if that is one sample, pass x[None]"
    return None


def _advice_for(given: Any) -> str | None:
    """Return what to pass instead of an argument that is no tensor."""
    kind = type(given).__name__
    if hasattr(given, "convert") and hasattr(given, "mode"):  # an image of Pillow, whose pixels are not yet an input
        return f"a {kind}: pass a batch of tensors, each prepared as the images of the fit, guard(x[None]) for one"
    if hasattr(given, "__array__"):
        return f"a {kind}: pass tensors, x = {AS_TENSOR}"
    if isinstance(given, (DataLoader, Dataset)):
        return f"a {kind}: pass the inputs of one batch after the other, for x, y in loader: guard(x)"
    if hasattr(given, "keys"):
        return f"one {kind}: pass its entries without the labels by name, guard(**batch)"
    return f"one {kind}: pass the model's inputs, guard(batch[0])" if isinstance(given, (tuple, list)) else None
