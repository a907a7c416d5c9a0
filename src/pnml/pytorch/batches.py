"""What a loader yields as the arguments of a model, by the signature of its ``forward``, and samples of these."""

from __future__ import annotations

import math
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from pnml.pytorch.models import device_of, tensors_in, unwrapped, with_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Arguments = tuple[tuple[Any, ...], dict[str, Any]]
    ChooseInputs = Callable[[Any], Any]

DATASET_BATCH = 128
"""How many samples of a Dataset go through the model at once."""

AS_TENSOR = "torch.as_tensor(numpy.asarray(x), dtype=torch.float32)"
"""What turns an array or a table of numbers into a tensor."""

LABELS = frozenset(("labels", "label", "label_ids", "targets", "target", "y"))
"""Names of arguments that hold labels, which a model that is guarded needs not."""

_WAY_OUT = "Say which, pnml.guard(model, inputs=lambda batch: {example}): a tensor, a tuple or a dict of arguments"


class BatchError(ValueError):
    """What is wrong with a batch of a loader, by its number."""


@contextmanager
def naming_batch(number: int) -> Iterator[None]:
    """Name the batch of a loader in every ``ValueError`` that names none."""
    try:
        yield
    except BatchError:
        raise
    except ValueError as error:
        raise BatchError(f"batch {number} of the loader: {error}") from error


def as_loader(loader: Any) -> Iterable[Any]:
    """Return a loader as it is, and a loader of a Dataset; raise ``TypeError`` for a batch or a model's input."""
    if isinstance(loader, Tensor):
        raise TypeError(f"expected a loader of batches, got a tensor of shape {tuple(loader.shape)}: wrap it, [x]")
    if hasattr(loader, "__array__"):
        raise TypeError(f"expected a loader of batches, got {type(loader).__name__}: wrap it, [{AS_TENSOR}]")
    if hasattr(loader, "keys"):
        raise TypeError(f"expected a loader of batches, got one batch with {list(loader.keys())}: wrap it, [batch]")
    if isinstance(loader, (tuple, list)) and _are_parts_of_a_batch(loader):
        shapes = ", ".join(str(tuple(x.shape)) for x in loader)
        raise TypeError(f"expected a loader of batches, got one batch of tensors of shapes {shapes}: wrap it, [batch]")
    if isinstance(loader, str) or (not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__")):
        raise TypeError(f"expected a loader of batches, got {type(loader).__name__}: pass a DataLoader or a list")
    if isinstance(loader, Dataset):
        return DataLoader(loader, batch_size=DATASET_BATCH)
    return loader  # type: ignore[no-any-return]


def inputs_of(batch: Any, model: nn.Module, choose: ChooseInputs | None = None) -> Arguments:
    """Split what a loader yields into a model's positional and keyword arguments, on the model's device.

    Args:
        batch: a tensor, a tuple of inputs and a label, or a dict of keyword arguments.
        model: its ``forward`` says how many entries of a tuple are inputs, and which entries of a dict.
        choose: returns the inputs of a batch instead: a tensor, a tuple of positional arguments, a dict of keyword
            arguments, or a pair of both.

    >>> x, y = torch.zeros(4, 2), torch.zeros(4)
    >>> len(inputs_of((x, x, y), nn.Bilinear(2, 2, 3))[0]), len(inputs_of((x, y), nn.Linear(2, 3))[0])
    (2, 1)
    """
    plain = unwrapped(model)
    args, kwargs = _split(batch, _Forward.of(plain)) if choose is None else _chosen(choose(batch))
    device = device_of(model)
    moved: Arguments = with_tensors(lambda x: x.to(device, non_blocking=True), (args, kwargs))
    return moved


class _Forward(NamedTuple):
    """What the ``forward`` of a model takes.

    Attributes:
        model: the name of its class.
        required: how many positional arguments it needs.
        most: how many it takes.
        names: of the arguments that it takes by name.
        needed: those of them without a default.
        any_name: whether it takes others, too.
    """

    model: str
    required: int = 0
    most: float = math.inf
    names: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()
    any_name: bool = True

    @classmethod
    def of(cls, model: nn.Module) -> _Forward:
        name = type(model).__name__
        try:
            parameters = list(signature(model.forward).parameters.values())
        except (TypeError, ValueError):  # a forward without a signature, in C++ or scripted
            return cls(name)
        kinds = [parameter.kind for parameter in parameters]
        ordered = [p for p in parameters if p.kind in {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}]
        named = [p for p in parameters if p.kind in {Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD}]
        return cls(
            name,
            sum(p.default is Parameter.empty for p in ordered),
            math.inf if Parameter.VAR_POSITIONAL in kinds else len(ordered),
            frozenset(p.name for p in named),
            frozenset(p.name for p in named if p.default is Parameter.empty),
            Parameter.VAR_KEYWORD in kinds,
        )


def _split(batch: Any, forward: _Forward, name: str = "batch") -> Arguments:
    if isinstance(batch, Tensor):
        return (batch,), {}
    if hasattr(batch, "keys"):
        return _by_name(batch, forward)
    if isinstance(batch, (tuple, list)) and batch:
        return _by_position(list(batch), forward, name)
    example = f"torch.as_tensor({name})" if _is_other_array(batch) else f"{name}.x"
    raise TypeError(
        f"the loader yielded {type(batch).__name__}: expected a tensor, a tuple of inputs and a label, or a dict of "
        f"keyword arguments. {_WAY_OUT.format(example=example)}"
    )


def _by_position(batch: list[Any], forward: _Forward, name: str) -> Arguments:
    """Take as many leading entries as forward needs; what follows must be labels, or have no place in forward."""
    first, rest = batch[0], batch[1:]
    if hasattr(first, "keys"):
        if any(map(_is_wide, rest[:-1])):
            raise _ambiguous(batch, forward)
        return _by_name(first, forward)
    if isinstance(first, (tuple, list)) and first:  # ((a, b), label)
        if not all(isinstance(x, Tensor) for x in first):
            return _split(first[0], forward, f"{name}[0][0]")
        if len(first) > forward.most:
            raise _ambiguous(batch, forward)
        return tuple(first), {}
    if not isinstance(first, Tensor):
        return _split(first, forward, f"{name}[0]")
    taken = max(1, forward.required)
    if len(batch) < taken:
        raise ValueError(
            f"the loader yielded {len(batch)} entries, and {forward.model}.forward needs {taken} inputs: yield them "
            "all, as a tuple or a dict of keyword arguments"
        )
    # Labels, weights and numbers of samples have one axis; what has more may be an input that forward could take.
    if forward.most > taken and any(map(_is_wide, batch[taken:])):
        raise _ambiguous(batch, forward)
    return tuple(batch[:taken]), {}


def _by_name(batch: Any, forward: _Forward) -> Arguments:
    """Take the entries that forward knows; what it does not know must be a label or the like."""
    kept = {key: batch[key] for key in batch.keys() if key not in LABELS or key in forward.needed}  # noqa: SIM118
    known = {key: value for key, value in kept.items() if forward.any_name or key in forward.names}
    others = {key: value for key, value in kept.items() if key not in known}
    wide = [key for key, value in others.items() if _is_wide(value)]
    if known and not wide and forward.needed <= set(known):
        return (), known
    inputs = wide or [key for key, value in others.items() if isinstance(value, Tensor)]
    if not known and len(inputs) == 1 and forward.required <= 1:
        return _split(others[inputs[0]], forward)
    key = next(iter(kept), "image")
    example = f"torch.as_tensor(batch[{key!r}])" if _is_other_array(kept.get(key)) else f"batch[{key!r}]"
    if not known and type(batch) is not dict and forward.required == 1:  # an object of its own, as of graphs
        example = "(batch,)"
    is_one = not known and forward.required == 1
    takes = ", ".join(sorted(forward.needed or forward.names)[:8]) or "nothing"
    raise ValueError(
        f"{forward.model}.forward takes {takes} by name, and the loader yielded a dict with {list(batch.keys())}. "
        + _WAY_OUT.format(example=example)
        + (". For a forward that takes the whole dict it is (batch,)" if type(batch) is dict and is_one else "")
    )


def _ambiguous(batch: list[Any], forward: _Forward) -> ValueError:
    shapes = [str(tuple(x.shape)) if isinstance(x, Tensor) else type(x).__name__ for x in batch]
    most = "any number of" if forward.most == math.inf else f"up to {forward.most}"
    return ValueError(
        f"the loader yielded a tuple of {', '.join(shapes)}, and {forward.model}.forward needs {forward.required} and "
        f"takes {most} inputs: which entries are they? {_WAY_OUT.format(example=f'batch[:{max(1, len(batch) - 1)}]')}"
    )


def _is_other_array(value: Any) -> bool:
    """Return whether a value is an array, and no tensor."""
    return hasattr(value, "__array__") and not isinstance(value, Tensor)


def _is_wide(value: Any) -> bool:
    """Return whether a value may be an input of a model, and is no label: it has more than one axis, or entries."""
    return (isinstance(value, Tensor) and value.ndim > 1) or hasattr(value, "keys")


def _are_parts_of_a_batch(entries: tuple[Any, ...] | list[Any]) -> bool:
    """Return whether tensors differ in their axes, as inputs and labels do, and batches of inputs do not."""
    return all(isinstance(x, Tensor) for x in entries) and len({x.ndim for x in entries}) > 1


def _chosen(found: Any) -> Arguments:
    """Return what a user's function made of a batch as positional and keyword arguments."""
    if isinstance(found, tuple) and len(found) == 2:
        args, kwargs = found
        if isinstance(args, (tuple, list)) and hasattr(kwargs, "keys"):
            return tuple(args), dict(kwargs)
    if isinstance(found, (tuple, list)):
        return tuple(found), {}
    return ((), dict(found)) if hasattr(found, "keys") else ((found,), {})


def has_labels(kwargs: dict[str, Any]) -> bool:
    """Return whether there are labels among keyword arguments."""
    return not LABELS.isdisjoint(kwargs)


def positional_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the positional arguments of a model.

    >>> positional_names(nn.Linear(2, 2))
    ('input',)
    """
    kinds = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
    try:
        parameters = signature(unwrapped(model).forward).parameters
    except (TypeError, ValueError):  # a forward without a signature, in C++ or scripted
        return ()
    return tuple(name for name, parameter in parameters.items() if parameter.kind in kinds)


def named_arguments(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a model by name; of a dict that it takes whole what that holds."""
    if len(args) == 1 and hasattr(args[0], "keys"):
        return {**args[0], **kwargs}
    return {**dict(zip(names, args, strict=False)), **kwargs}


def sample_count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Return how many samples the arguments of a model hold: the length of the first tensor, None if there is none."""
    first = args[0] if args and isinstance(args[0], Tensor) else next(tensors_in((args, kwargs)), None)
    return None if first is None or not first.ndim else len(first)


def some_samples(args: tuple[Any, ...], kwargs: dict[str, Any], numbers: Tensor) -> Arguments:
    """Return arguments with some of their samples, those of these numbers, copied."""
    count = sample_count(args, kwargs)

    def some(x: Tensor) -> Tensor:
        return x[numbers.to(x.device)] if x.ndim and len(x) == count else x.clone()

    chosen: Arguments = with_tensors(some, (args, kwargs))
    return chosen


def few_samples(args: tuple[Any, ...], kwargs: dict[str, Any], most: int) -> Arguments:
    """Return arguments with the first samples, not as many as another axis is long, so that no axis is mistaken.

    >>> few_samples((torch.zeros(20, 8),), {}, most=8)[0][0].shape
    torch.Size([7, 8])
    """
    count = sample_count(args, kwargs) or 0
    lengths = {size for x in tensors_in((args, kwargs)) for size in x.shape[1:]}
    numbers = [number for number in range(min(most, count), 2, -1) if number not in lengths]
    return some_samples(args, kwargs, torch.arange(numbers[0] if numbers else min(most, count)))


def advice_for(args: tuple[Any, ...], kwargs: dict[str, Any], fitted_ndim: int | None) -> str | None:
    """Return what to pass instead where a model failed on arguments that are no batch of inputs, None if they are.

    Args:
        args: the positional arguments of the call.
        kwargs: the keyword arguments.
        fitted_ndim: how many axes the first input had when the guard was fitted, None if that is not known.
    """
    if args and not isinstance(args[0], Tensor):
        return _advice_for_other(args[0])
    first = next(tensors_in((args, kwargs)), None)
    if first is not None and fitted_ndim is not None and first.ndim == fitted_ndim - 1:
        axes = ", ".join(["1", *map(str, first.shape)])
        return f"an input of shape {tuple(first.shape)}, without the axis of samples: pass x[None], of shape ({axes})"
    if first is not None and fitted_ndim is None and first.ndim in {1, 3}:
        return f"an input of shape {tuple(first.shape)}: if that is one sample, pass x[None]"
    return None


def _advice_for_other(given: Any) -> str | None:
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
