"""Which last layer of a model a detector was fitted for, told by its weights before the model is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from pnml.core.last_layer import head_digest
from pnml.pytorch.affine import own_affine
from pnml.pytorch.head import linear_layers
from pnml.pytorch.last_layer import has_own_weights, with_zero_class
from pnml.pytorch.passes import is_convolution

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from pnml.core.detector import Detector
    from pnml.pytorch.affine import Affine


def name_of_head(
    model: nn.Module, detector: Detector, path: str | os.PathLike[str], *, named: str | None = None
) -> str | None:
    """Return the name of the layer that a detector was fitted for; what was named where weights alone do not tell.

    Args:
        model: a classifier.
        detector: that was loaded.
        path: where from, for errors.
        named: the layer that the user named.
    """
    every = [name for name, _ in model.named_modules()]
    matches = _matching_layers(model, [named] if named in every and named else every, detector.head_digest)
    if not matches and has_own_weights(detector.head_notes) and not _has_made_weights(model):
        raise ValueError(
            f"{path} was fitted for another last layer: one of {detector.n_features} features and "
            f"{detector.n_classes} classes with digest {detector.head_digest[:12]}, which none of this model's "
            f"linear layers {[named] if named else list(linear_layers(model))} is: "
            "load the weights that it was fitted with into the model (--weights on the command line)"
        )
    known = None if detector.reading is None else detector.reading["head"]
    if known in matches:  # of equal layers, as of a copy that was trained and its original, the one that was found
        return str(known)
    if len(matches) > 1:
        raise ValueError(
            f"{path} fits more than one layer of this model: say which, pnml.guard(model, head=...), of {matches}"
        )
    return matches[0] if matches else named


def check_same_head(detector: Detector, affine: Affine) -> None:
    """Raise ``ValueError`` unless a detector was fitted for this last layer, in whatever precision."""
    weight, bias = (part.cpu().double() for part in affine)
    fitted = torch.from_numpy(detector.weight), torch.from_numpy(detector.bias)
    same = all(
        mine.shape == theirs.shape and bool((mine - theirs).abs().max() <= 0.02 * theirs.abs().max())
        for mine, theirs in zip((weight, bias), fitted, strict=True)
    )
    if not same:
        raise ValueError(
            f"the detector was fitted for another last layer: one of {detector.n_features} features and "
            f"{detector.n_classes} classes with digest {detector.head_digest[:12]}, where this model's has "
            f"{weight.shape[1]} features, {len(weight)} classes and digest {head_digest(weight, bias)[:12]}"
        )


def _has_made_weights(model: nn.Module) -> bool:
    """Return whether a linear layer makes its weight when it is called, as after pruning: no one can tell it before."""
    linear = (module for module in model.modules() if isinstance(module, nn.Linear) or is_convolution(module))
    return any("weight" not in module._parameters and not is_parametrized(module) for module in linear)  # noqa: SLF001


def _matching_layers(model: nn.Module, names: Sequence[str], digest: str) -> list[str]:
    """Return the linear layers among modules that have this fingerprint, alone or behind a class whose logit is 0."""
    found = []
    for name in names:
        own = own_affine(model.get_submodule(name))
        if own is not None and digest in {head_digest(*own), head_digest(*with_zero_class(own))}:
            found.append(name)
    return found
