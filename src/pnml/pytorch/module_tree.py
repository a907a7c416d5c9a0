"""The modules of a model, walked once: a walk before every call would take longer than all else that a guard does."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import nn


class Held:
    """What some mappings hold, and whether it is still the same objects.

    Iterating in C is what makes it quick. Mappings of scripted modules, which cannot change, are no dictionaries.
    """

    def __init__(self, mappings: Iterable[Any] = ()) -> None:
        held = [mapping for mapping in mappings if isinstance(mapping, dict)]
        self._empty = [mapping for mapping in held if not mapping]  # most are
        self._filled = [mapping for mapping in held if mapping]
        self._counts = list(map(len, self._filled))
        self._known = list(self._now())

    def is_same(self) -> bool:
        """Return whether every mapping holds what it held."""
        if any(self._empty) or list(map(len, self._filled)) != self._counts:
            return False
        return all(map(is_, self._now(), self._known))

    def _now(self) -> Iterator[Any]:
        return chain.from_iterable(map(dict.values, self._filled))


def submodules(model: nn.Module, name: str) -> list[nn.Module]:
    """Return the modules on the way from a model to the one of a name, that one included, the model not.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Sequential(nn.ReLU()))
    >>> submodules(model, "0.0")
    [Sequential(
      (0): ReLU()
    ), ReLU()]
    """
    found = []
    for part in name.split(".") if name else ():
        child = model._modules[part]  # noqa: SLF001 - get_submodule takes longer, and cannot be traced everywhere
        if child is None:
            raise AttributeError(f"the model has no module {name!r}")
        model = child
        found.append(model)
    return found


def submodule(model: nn.Module, name: str) -> nn.Module:
    """Return the module of a name, the model itself for an empty one."""
    return submodules(model, name)[-1] if name else model


@contextmanager
def in_eval_mode(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Put modules into eval mode and record no gradients; restore the mode of each on leaving."""
    training = [module for module in modules if module.training]
    try:
        for module in training:
            module.training = False
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


class ModuleTree:
    """All modules of a model; they are looked for anew when one was added, removed or replaced.

    >>> from torch import nn
    >>> model, tree = nn.Sequential(nn.ReLU()), ModuleTree()
    >>> len(tree.modules(model)), len(tree.modules(model.append(nn.ReLU())))
    (2, 3)
    """

    def __init__(self) -> None:
        self._modules: list[nn.Module] = []
        self._children = Held()

    def modules(self, model: nn.Module) -> list[nn.Module]:
        """Return the modules of a model, itself first: the same list as long as they are the same modules."""
        if self.has_changed(model):
            modules = [model]
            for module in modules:  # which grows on the way
                modules.extend(child for child in module._modules.values() if child is not None)  # noqa: SLF001
            self._modules, self._children = modules, Held(module._modules for module in modules)  # noqa: SLF001
        return self._modules

    def has_changed(self, model: nn.Module) -> bool:
        """Return whether the modules are others than those returned last."""
        return not (self._modules and self._modules[0] is model and self._children.is_same())

    def __getstate__(self) -> dict[str, Any]:
        return vars(ModuleTree())  # a copy of the model has modules of its own
