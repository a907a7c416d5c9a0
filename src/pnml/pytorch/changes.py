"""Whether a guarded model still has the weights that its detector was fitted with."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Literal

from pnml.pytorch.fingerprint import WeightWatch, digest, fingerprint, same_but_rounded

if TYPE_CHECKING:
    import os

    from torch import nn

    from pnml.pytorch.fingerprint import Fingerprint

Relation = Literal["same", "rounded", "other"]


class ModelChangedWarning(UserWarning):
    """A guarded model has other weights than when its detector was fitted."""


class FittedWeights:
    """The weights with which a detector was fitted, and whether a model has them still.

    Reading all weights takes a while, so they are read only when a :class:`~pnml.pytorch.fingerprint.WeightWatch` says
    that they may have changed.
    """

    def __init__(self) -> None:
        self._kept: Fingerprint = {}
        self._watch = WeightWatch()
        self._reported = ""

    def keep(self, modules: list[nn.Module], kept: Fingerprint | None = None) -> Fingerprint:
        """Take the model's weights, or those of a fingerprint that it has, for the fitted ones; return it.

        Args:
            modules: all modules of the model, itself first.
            kept: the fingerprint.
        """
        self._kept, self._reported = kept or fingerprint(modules[0]), ""
        self._watch.renew(modules)
        return self._kept

    def warn_if_changed(self, modules: list[nn.Module], *, stacklevel: int) -> None:
        """Warn, once for every change, if the model has other weights than the fitted ones.

        Args:
            modules: all modules of the model, itself first; the same list as long as they are the same modules.
            stacklevel: which caller the warning points at.
        """
        if not self._watch.has_moved(modules):
            return
        if not self._kept:  # a detector that was set by hand
            self.keep(modules)
        self._watch.renew(modules)
        model = modules[0]
        now = digest(model)
        if now in {self._kept["exact"], self._reported}:
            return
        self._reported = now
        if same_but_rounded(self._kept, model):
            message = (
                "the model has the weights that the guard was fitted with in another precision: regrets differ by "
                "their rounding. Set the threshold in the precision in use, guard.calibrate(val_loader)"
            )
        else:
            message = (
                "the model's weights have changed since the guard was fitted: its regrets, p-values and decisions are "
                "those of another model. Fit and calibrate again: guard.fit(train_loader).calibrate(val_loader)"
            )
        warnings.warn(message, ModelChangedWarning, stacklevel=stacklevel + 1)


def relation(kept: Fingerprint, model: nn.Module) -> Relation:
    """Return how a model's weights stand to those of a fingerprint; "same" if it is empty, of an older file."""
    if not kept or digest(model) == kept["exact"]:
        return "same"
    return "rounded" if same_but_rounded(kept, model) else "other"


def refuse_rounded(path: str | os.PathLike[str]) -> ValueError:
    """Return the error for a model with the fitted weights in another precision."""
    return ValueError(
        f"{path} was fitted with these weights in another precision: load it into the model in that precision, and "
        "convert the guard afterwards, pnml.guard(model).load(path).half()"
    )


def refuse_changed(path: str | os.PathLike[str]) -> ValueError:
    """Return the error for a model with other weights than the fitted ones."""
    return ValueError(
        f"{path} was fitted with other weights than this model has, though the last layer is the same: fit again, or "
        "load the checkpoint it was fitted with. To use it all the same, load(path, check_model=False), or on the "
        "command line --no-check-model"
    )
