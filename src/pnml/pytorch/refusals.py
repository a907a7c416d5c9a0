"""Why no head was found, in words, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pnml.pytorch.endings import FUNCTIONS
from pnml.pytorch.head import HeadNotFoundError, is_compiled, linear_layers
from pnml.pytorch.summed import calls_like, shares_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pnml.pytorch.passes import Pass

WAY_OUT = (
    "\nFor any other model, say what its last layer is and what enters it:\n"
    "  pnml.guard(model, head=(weight, bias), embed=lambda model, x: model.features(x))"
)
"""What every refusal ends with: a line to copy."""


def refusal(
    trouble: str, answer: Tensor, modules: Mapping[str, nn.Module], names: Sequence[str] = ()
) -> HeadNotFoundError:
    """Return the error that names candidates for the head."""
    layers = linear_layers(modules[""])
    width = answer.shape[-1] if answer.ndim > 1 else 1
    fitting = [name for name in names or layers if name in layers and layers[name].out_features == width]
    lines = [
        f"  {name}: {layers[name].in_features} features to {layers[name].out_features} outputs"
        for name in fitting or layers
    ]
    candidates = "\n".join(lines) or "  none: the model has no nn.Linear"
    return HeadNotFoundError(
        f"{trouble} the model's logits, of shape {tuple(answer.shape)}, as its output. Name the last layer "
        f"yourself, pnml.guard(model, head='...'); the candidates are:\n{candidates}\nIf the model goes on with their "
        f"output in a way that is not linear, as with a maximum, let it return that output itself.{WAY_OUT}"
    )


def multilabel_refusal(answer: Tensor, reason: str) -> HeadNotFoundError:
    """Return the error for independent labels that would be taken for classes."""
    return HeadNotFoundError(
        f"the model has {answer.shape[-1]} independent labels, not classes of which one is right: {reason}. "
        "Take one regret per label:\n  pnml.guard(model, task='multilabel')"
    )


def diagnosis(
    modules: Mapping[str, nn.Module], seen: Pass, named: str | None, not_affine: Sequence[str], samples: int | None
) -> HeadNotFoundError:
    """Return the error that says why none of a model's layers is its head.

    Args:
        modules: of the model, by name.
        seen: a forward pass.
        named: the head that was asked for.
        not_affine: the names of layers whose output the answer is made of, and which are not affine.
        samples: how many the batch has, None if that is not known.
    """
    exported = isinstance(modules[""], torch.fx.GraphModule) and not linear_layers(modules[""])
    if exported or any(isinstance(module, torch.jit.ScriptModule) for module in modules.values()):
        return HeadNotFoundError(
            "the model is scripted, traced or exported, and does not show what passes through its layers: guard the "
            f"module that it was made from, and script that one's graph.{WAY_OUT}"
        )
    if seen.answer.ndim == 1 and seen.answer.shape[0] not in {1, samples} and named is None and not not_affine:
        return HeadNotFoundError(
            f"the model answered with shape {tuple(seen.answer.shape)}, as for one sample without an axis of samples: "
            f"pass batches, DataLoader(dataset, batch_size=128), or x[None] for one sample.{WAY_OUT}"
        )
    if members := _members(modules, seen):
        return HeadNotFoundError(
            f"the model averages or adds up what it makes of the outputs of several linear layers, {members}: that is "
            "not one linear classifier. Guard each member, and flag a sample that any of them flags:\n"
            f"  guards = [pnml.guard(member).fit(train_loader) for member in members]{WAY_OUT}"
        )
    if not_affine:
        name = not_affine[-1]
        return HeadNotFoundError(
            f"the head {name!r}, a {type(modules[name]).__name__}, does not compute weight · x + bias, which the "
            f"regret needs, or its output is changed in place after it: write z = z / 2, not z /= 2{WAY_OUT}"
        )
    trouble = "no linear layer has" if named is None else f"{named!r} does not have"
    if any(map(is_compiled, modules.values())):
        trouble = f"a head inside a compiled part of the model is not seen, and {trouble}"
    if len(seen.answer) == 1:
        trouble = f"the batch has one sample, which may be too few to see how an answer is made, and {trouble}"
    return refusal(trouble, seen.answer, modules)


def _members(modules: Mapping[str, nn.Module], seen: Pass) -> list[str]:
    """Return the layers whose outputs, or softmax of them, add up to the answer with some shares."""
    found = [(name, z) for name in seen.calls for _, z in calls_like(seen.answer, modules[name], seen.calls[name])]
    answer = seen.answer.float()
    for function in FUNCTIONS.values():
        parts = [function(z.float()) for _, z in found]
        for target in (answer, answer.exp()):  # the latter for the logarithm of a mean
            if shares_of(parts, target) is not None:
                return list(dict.fromkeys(name for name, _ in found))
    return []
