"""Load the model of the option ``--model package.module:factory``, and its weights."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from pnml.backend.extras import require
from pnml.io.pickles import refuse_pickle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor, nn

    Transform = Callable[[Any], Tensor]


def load_model(spec: str, weights: Path | None) -> tuple[nn.Module, Transform | None]:
    """Return the model of a factory with its weights, on the GPU if there is one, and its transform if it has one.

    Args:
        spec: ``package.module:factory``, importable from the working folder or installed. The factory takes no
            arguments and returns the model, or a pair of the model and a transform from a Pillow image to a tensor.
        weights: a safetensors file with the model's state; None keeps the weights of the factory.

    >>> model, transform = load_model("torch.nn:Identity", None)
    >>> model, transform
    (Identity(), None)
    """
    torch = require("torch", extra="torch", what="--model")
    from pnml.pytorch.head import unwrapped

    returned = _call_factory(spec)
    model, transform = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
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

    module_name, _, factory_name = spec.partition(":")
    if not module_name or not factory_name:
        raise ValueError(f"--model {spec!r} names no factory: expected package.module:factory")
    with _working_folder_importable():
        try:
            module = import_module(module_name)
        except ImportError as error:
            fix = "Install the package, or run in the folder of the module"
            if module_name.endswith(".py"):
                fix = f"Leave .py out: --model {module_name.removesuffix('.py').replace('/', '.')}:{factory_name}"
            raise ValueError(f"--model {spec!r}: {error}. {fix}") from error
        except Exception as error:
            raise ValueError(
                f"--model {spec!r}: importing {module_name} failed with {type(error).__name__}: {error}"
            ) from error
        factory = getattr(module, factory_name, None)
        if not callable(factory):
            raise ValueError(  # noqa: TRY004 - an invalid option
                f"--model {spec!r}: {module_name} has no function {factory_name!r}"
            )
        try:
            return factory()
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise ValueError(f"--model {spec!r} failed with {type(error).__name__}: {error}") from error


@contextmanager
def _working_folder_importable() -> Iterator[None]:
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _load_weights(model: nn.Module, path: Path) -> None:
    from safetensors.torch import load_model as load_into

    refuse_pickle(path, "tensors")
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
