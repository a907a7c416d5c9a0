"""What a guard is made with, checked before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from pnml.pytorch.finding import TASKS
from pnml.pytorch.head import linear_layers
from pnml.pytorch.layers import check_layer_names


def check_model(model: Any) -> None:
    """Raise ``TypeError`` for what is no PyTorch model, with what to do instead."""
    if isinstance(model, nn.Module):
        return
    advice = "build the network and load its weights first"
    if hasattr(model, "keys"):
        advice = "these look like weights, load them into the network first, model.load_state_dict(weights)"
    elif hasattr(model, "predict_proba"):
        advice = "for scikit-learn take pnml.PNMLClassifier(model)"
    raise TypeError(f"expected a model, a torch.nn.Module, got {type(model).__name__}: {advice}")


def check_task(task: str) -> None:
    """Raise ``ValueError`` for an unknown task."""
    if task not in TASKS:
        raise ValueError(f"task must be one of {TASKS}, got {task!r}")


def check_head(model: nn.Module, head: Any) -> None:
    """Raise unless a head is the name of a module of the model, a weight and a bias, or None."""
    if head is None or isinstance(head, tuple):
        return
    linear = list(linear_layers(model))
    if not isinstance(head, str):
        name = next((name for name, module in model.named_modules() if module is head and name), None)
        example = f"head={name!r}" if name else f"of its linear layers {linear}"
        raise TypeError(f"head must be the name of a layer, got {type(head).__name__}: give its name, {example}")
    if head not in dict(model.named_modules()):
        raise ValueError(f"head {head!r} is no module of the model; its linear layers are {linear}")


def as_layers(layers: Any) -> str | tuple[Any, ...]:
    """Return "auto", "last" or names as a tuple; raise for anything else.

    >>> as_layers(["block1", "block2"])
    ('block1', 'block2')
    """
    if isinstance(layers, str):
        if layers in {"auto", "last"}:
            return layers
    elif isinstance(layers, Iterable):
        return tuple(layers)
    kind = TypeError if not isinstance(layers, str) else ValueError
    raise kind(f'layers must be "auto", "last" or a list of names of modules, got {layers!r}')


def check_layers(model: nn.Module, layers: str | tuple[Any, ...], embedding_scale: str, *, has_embed: bool) -> None:
    """Raise unless layers that are named are modules that can be watched.

    Args:
        model: the classifier, out of its wrappers.
        layers: as :func:`as_layers` returns them.
        embedding_scale: layers that are named need "auto".
        has_embed: whether the user gives the embeddings.
    """
    if isinstance(layers, str) or not layers:
        return
    for layer in layers:
        if not isinstance(layer, str):
            raise TypeError(f"layers must be names of modules, got {layer!r}: see dict(model.named_modules())")
    check_layer_names(model, layers)
    if embedding_scale != "auto":
        raise ValueError(f'layers={list(layers)} need embedding_scale="auto", got {embedding_scale!r}')
    if has_embed:
        raise ValueError(f"layers={list(layers)} cannot be watched along with embed=: leave one of them out")
