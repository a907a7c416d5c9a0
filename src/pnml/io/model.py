"""Load the model of the option ``--model mine.py:create``, and its weights."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from pnml.backend.extras import require
from pnml.io.code import load_code
from pnml.io.pickles import SUFFIXES, WHOLE_MODEL, refuse_pickle

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor, nn

    Transform = Callable[[Any], Tensor]


def load_model(spec: str, weights: Path | None) -> tuple[nn.Module, Transform | None]:
    """Return the model of a factory with its weights, on the GPU if there is one, and its transform if it has one.

    Args:
        spec: ``mine.py:create``, or ``package.module:create``, importable from the working folder or installed. The
            function takes no arguments and returns the model, or a pair of the model and a transform: from a Pillow
            image to a tensor, or from a list of texts to what the model takes.
        weights: a safetensors file with the model's state; None keeps the weights of the factory.
    """
    torch = require("torch", extra="torch", what="--model")
    from pnml.pytorch.models import unwrapped

    model = _call_factory(spec)
    transform = None
    if isinstance(model, tuple) and len(model) == 2:
        model, transform = model
    if not isinstance(model, torch.nn.Module):
        raise ValueError(  # noqa: TRY004 - an invalid option
            f"{spec} returned {type(model).__name__}: expected an nn.Module, or an (nn.Module, transform) pair"
        )
    model = unwrapped(model)
    if weights is not None:
        _load_weights(model, weights)
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval(), transform


def _call_factory(spec: str) -> Any:
    import torch

    if spec.lower().endswith(SUFFIXES):
        raise ValueError(
            f"--model {spec!r} is a file of torch.save, and expected is a function that returns the model, as "
            f"mine.py:create. If the file holds a whole model, {WHOLE_MODEL.format(path=spec)}"
        )
    factory = load_code(spec, "--model", "function", "create").value
    needed = _needed_arguments(factory)
    if needed:
        raise ValueError(
            f"--model {spec!r} takes the arguments {', '.join(needed)}: expected a function that takes none; write "
            "one that fills them in"
        )
    try:
        return factory()
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ValueError(f"--model {spec!r} failed with {type(error).__name__}: {error}") from error


def _needed_arguments(factory: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments that a function cannot be called without."""
    try:
        parameters = signature(factory).parameters.values()
    except (TypeError, ValueError):  # of C++, without a signature
        return []
    optional = {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
    return [one.name for one in parameters if one.default is Parameter.empty and one.kind not in optional]


def _load_weights(model: nn.Module, path: Path) -> None:
    from safetensors.torch import load_model as load_into

    try:
        refuse_pickle(path, "tensors")
    except ValueError as error:
        whole = WHOLE_MODEL.format(path=str(path))
        raise ValueError(f"{error}\nIf it holds a whole model, leave --weights out and {whole}") from None
    try:
        missing, unexpected = load_into(model, path, strict=False)
    except SafetensorError as error:
        raise ValueError(f"{path} is no whole safetensors file ({error}): write it again") from error
    except RuntimeError as error:  # tensors of other shapes
        raise ValueError(f"{path} does not fit the model: {error}") from error
    problems = [
        f"{len(names)} tensors {what} ({', '.join(sorted(names)[:3])}{', ...' if len(names) > 3 else ''})"
        for what, names in (("are missing", list(missing)), ("are not the model's", list(unexpected)))
        if names
    ]
    if problems:
        raise ValueError(f"{path} does not fit the model: {' and '.join(problems)}")
