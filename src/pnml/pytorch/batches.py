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
    kind = type(loader).__name__
    is_sequence = isinstance(loader, (tuple, list)) and all(isinstance(x, Tensor) for x in loader)
    if isinstance(loader, Tensor):
        problem = f"a tensor of shape {tuple(loader.shape)}: wrap it, [x]"
    elif hasattr(loader, "__array__"):
        problem = f"{kind}: wrap it, [{AS_TENSOR}]"
    elif hasattr(loader, "keys"):
        problem = f"one batch with {list(loader.keys())}: wrap it, [batch]"
    elif is_sequence and len({x.ndim for x in loader}) > 1:  # inputs and labels; batches of inputs have the same axes
        shapes = ", ".join(str(tuple(x.shape)) for x in loader)
        problem = f"one batch of tensors of shapes {shapes}: wrap it, [batch]"
    elif isinstance(loader, str) or not (hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")):
        problem = f"{kind}: pass a DataLoader or a list"
    else:
        return DataLoader(loader, batch_size=DATASET_BATCH) if isinstance(loader, Dataset) else loader
    raise TypeError(f"expected a loader of batches, got {problem}")


def inputs_of(batch: Any, model: nn.Module, choose: ChooseInputs | None = None) -> Arguments:
    """Split what a loader yields into a model's positional and keyword arguments, on the model's device.

    >>> x, y = torch.zeros(4, 2), torch.zeros(4)
    >>> len(inputs_of((x, x, y), nn.Bilinear(2, 2, 3))[0]), len(inputs_of((x, y), nn.Linear(2, 3))[0])
    (2, 1)
    """
    plain = unwrapped(model)
    args, kwargs = _split(batch, _Forward.of(plain)) if choose is None else _chosen(choose(batch))
    device = device_of(model)
    return with_tensors(lambda x: x.to(device, non_blocking=True), (args, kwargs))  # type: ignore[no-any-return]


class _Forward(NamedTuple):
    """What the ``forward`` of a model takes."""

    model: str  # the name of its class
    positional: tuple[str, ...] = ()  # the names of its positional arguments
    required: int = 0  # how many of these it needs
    most: float = math.inf  # how many it takes
    names: frozenset[str] = frozenset()  # of the arguments that it takes by name
    needed: frozenset[str] = frozenset()  # those of them without a default
    any_name: bool = True  # whether it takes others, too

    @classmethod
    def of(cls, model: nn.Module) -> _Forward:
        name = type(model).__name__
        try:
            parameters = list(signature(model.forward).parameters.values())
        except (TypeError, ValueError):  # a forward without a signature, in C++ or scripted
            return cls(name)
        kinds = {p.kind for p in parameters}
        ordered = [p for p in parameters if p.kind in {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}]
        named = [p for p in parameters if p.kind in {Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD}]
        return cls(
            name,
            tuple(p.name for p in ordered),
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
    first = batch[0]
    if hasattr(first, "keys"):
        if any(map(_is_wide, batch[1:-1])):
            raise _ambiguous(batch, forward)
        return _by_name(first, forward)
    if isinstance(first, (tuple, list)) and first and all(isinstance(x, Tensor) for x in first):  # ((a, b), label)
        if len(first) > forward.most:
            raise _ambiguous(batch, forward)
        return tuple(first), {}
    if not isinstance(first, Tensor):
        return _split(first, forward, f"{name}[0]")
    count = max(1, forward.required)
    if len(batch) < count:
        raise ValueError(
            f"the loader yielded {len(batch)} entries, and {forward.model}.forward needs {count} inputs: yield them "
            "all, as a tuple or a dict of keyword arguments"
        )
    # Labels, weights and numbers of samples have one axis; what has more may be an input that forward could take.
    if forward.most > count and any(map(_is_wide, batch[count:])):
        raise _ambiguous(batch, forward)
    return tuple(batch[:count]), {}


def _by_name(batch: Any, forward: _Forward) -> Arguments:
    """Take the entries that forward knows; what it does not know must be a label or the like."""
    entries = {key: batch[key] for key in batch.keys() if key not in LABELS or key in forward.needed}  # noqa: SIM118
    named = {key: value for key, value in entries.items() if forward.any_name or key in forward.names}
    others = {key: value for key, value in entries.items() if key not in named}
    wide = [key for key, value in others.items() if _is_wide(value)]
    if named and not wide and forward.needed <= set(named):
        return (), named
    inputs = wide or [key for key, value in others.items() if isinstance(value, Tensor)]
    if not named and len(inputs) == 1 and forward.required <= 1:
        return _split(others[inputs[0]], forward)
    key = next(iter(entries), "image")
    example = f"torch.as_tensor(batch[{key!r}])" if _is_other_array(entries.get(key)) else f"batch[{key!r}]"
    hint = ""
    if not named and forward.required == 1:
        if type(batch) is dict:
            hint = ". For a forward that takes the whole dict it is (batch,)"
        else:  # an object of its own, as of graphs
            example = "(batch,)"
    takes = ", ".join(sorted(forward.needed or forward.names)[:8]) or "nothing"
    raise ValueError(
        f"{forward.model}.forward takes {takes} by name, and the loader yielded a dict with {list(batch.keys())}. "
        f"{_WAY_OUT.format(example=example)}{hint}"
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


def _chosen(inputs: Any) -> Arguments:
    """Return what a user's function made of a batch as positional and keyword arguments."""
    if hasattr(inputs, "keys"):
        return (), dict(inputs)
    if not isinstance(inputs, (tuple, list)):
        return (inputs,), {}
    if len(inputs) == 2 and isinstance(inputs[0], (tuple, list)) and hasattr(inputs[1], "keys"):
        return tuple(inputs[0]), dict(inputs[1])
    return tuple(inputs), {}


def positional_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the positional arguments of a model.

    >>> positional_names(nn.Linear(2, 2))
    ('input',)
    """
    return _Forward.of(unwrapped(model)).positional


def named_arguments(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a model by name; of a dict that it takes whole what that holds."""
    if len(args) == 1 and hasattr(args[0], "keys"):
        return {**args[0], **kwargs}
    return {**dict(zip(names, args, strict=False)), **kwargs}


def sample_count(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Return how many samples the arguments of a model hold: the length of the first tensor, None if there is none."""
    first: Any = args[0] if args else next(iter(kwargs.values()), None)
    if not isinstance(first, Tensor):
        first = next(tensors_in((args, kwargs)), None)
    return None if first is None or not first.ndim else len(first)


def some_samples(args: tuple[Any, ...], kwargs: dict[str, Any], numbers: Tensor) -> Arguments:
    """Return arguments with some of their samples, those of these numbers, copied."""
    count = sample_count(args, kwargs)

    def some(x: Tensor) -> Tensor:
        return x[numbers.to(x.device)] if x.ndim and len(x) == count else x.clone()

    return with_tensors(some, (args, kwargs))  # type: ignore[no-any-return]


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

    ``fitted_ndim`` is how many axes the first input had when the guard was fitted, None if that is not known.
    """
    if args and not isinstance(args[0], Tensor):
        return _advice_for_other(args[0])
    first = next(tensors_in((args, kwargs)), None)
    if first is None:
        return None
    shape = tuple(first.shape)
    if fitted_ndim == first.ndim + 1:
        return f"an input of shape {shape}, without the axis of samples: pass x[None], of shape {(1, *shape)}"
    if fitted_ndim is None and first.ndim in {1, 3}:
        return f"an input of shape {shape}: if that is one sample, pass x[None]"
    return None


def _advice_for_other(value: Any) -> str | None:
    """Return what to pass instead of an argument that is no tensor."""
    advice = None
    if hasattr(value, "convert") and hasattr(value, "mode"):  # an image of Pillow, whose pixels are not yet an input
        advice = "pass a batch of tensors, each prepared as the images of the fit, guard(x[None]) for one"
    elif hasattr(value, "__array__"):
        advice = f"pass tensors, x = {AS_TENSOR}"
    elif isinstance(value, (DataLoader, Dataset)):
        advice = "pass the inputs of one batch after the other, for x, y in loader: guard(x)"
    elif hasattr(value, "keys"):
        advice = "pass its entries without the labels by name, guard(**batch)"
    elif isinstance(value, (tuple, list)):
        advice = "pass the model's inputs, guard(batch[0])"
    return None if advice is None else f"one {type(value).__name__}: {advice}"
