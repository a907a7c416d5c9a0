"""What the benchmark runs: the cells of the paper's tables, and pairs beyond them.

A cell is one method on one network, in-distribution (IND) set and OOD set. Cells that share a network's checkpoint are
run together, so that its embeddings are computed once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pnml.backend.suggest import did_you_mean
from pnml.integrations._import import import_pytorch_ood
from pnml_bench.data import SETS
from pnml_bench.methods import ALL_METHODS, GROUPS, Method, Peer
from pnml_bench.own.names import name_of_file
from pnml_bench.paper import REMADE, paper_cells
from pnml_bench.zoo import ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NOISE = tuple(name for name, source in SETS.items() if source.generate is not None)
"""The sets that are drawn from a seed, so that they can be drawn again."""


@dataclass(frozen=True)
class Cell:
    """One run: the names of network, IND set, OOD set (or its path) and method."""

    model: str
    ind: str
    ood: str
    method: str

    @property
    def ood_name(self) -> str:
        """The OOD set's name in results: for a path, its last part in lower case.

        >>> Cell("resnet-34", "cifar10", "holiday/My Photos", "baseline").ood_name
        'my-photos'
        """
        return self.ood if self.ood in SETS else name_of_file(self.ood)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The key of its result: model, in-distribution set, OOD set and method."""
        return self.model, self.ind, self.ood_name, self.method

    @property
    def checkpoint(self) -> str:
        """The checkpoint that the paper's protocol runs it on; OECC and the paper's Energy rows tune a network first.

        >>> Cell("densenet-bc-100", "cifar10", "svhn", "oecc").checkpoint
        'densenet-bc-100-oecc_cifar10'
        """
        if self.ind == "imagenet30":
            return f"{self.model}_imagenet"
        tuned = self.method == "oecc" or (self.model, self.method) == ("wideresnet-40-2", "energy")
        return f"{self.model}-{self.method}_{self.ind}" if tuned else f"{self.model}_{self.ind}"


def paper_plan() -> list[Cell]:
    """Return every cell of the paper's tables, each once, in print order, and those of re-made sets after the others.

    >>> len(paper_plan())
    258
    """
    cells = list(dict.fromkeys(Cell(*cell.key) for cell in paper_cells()))
    return cells + [replace(cell, ood=REMADE[cell.ood]) for cell in cells if cell.ood in REMADE]


def plan(
    model: str,
    ind: str,
    ood: Sequence[str],
    method: Sequence[str],
    own_methods: Mapping[str, type[Method]] = MappingProxyType({}),
) -> list[Cell]:
    """Return the cells of one network and IND set.

    Args:
        model: a name in ``pnml_bench.zoo.ARCHITECTURES``.
        ind: an image set with a training part.
        ood: image sets, "noise" for those that are drawn, or paths of folders of pictures or parquet files; ``["all"]``
            for those of the paper's tables.
        method: names in ``pnml_bench.methods.ALL_METHODS`` or ``GROUPS``: "all" (the paper's), "peers" or "layers".
        own_methods: classes of one's own by name, for ``method`` to name, too.

    Raises:
        ImportError: a method of pytorch-ood is wanted, and the package is not installed.

    >>> [cell.ood for cell in plan("resnet-34", "svhn", ["all"], ["odin"])][-3:]
    ['cifar10', 'cifar100', 'tinyimagenet_resize_nearest']
    >>> plan("resnet-34", "cifar10", ["cifar10"], ["odin"])
    Traceback (most recent call last):
    ...
    ValueError: the OOD set 'cifar10' is the in-distribution set itself: choose another
    """
    _check("model", model, ARCHITECTURES)
    _check("in-distribution set", ind, [name for name, source in SETS.items() if "train" in source.counts])
    oods = _all_ood(ind) if list(ood) == ["all"] else expand_noise(ood)
    methods = choose_methods(method, own_methods)
    cells = [Cell(model, ind, one, name) for one in oods for name in methods]
    for cell in cells:
        _check_ood(cell)
    return list(dict.fromkeys(cells))


def choose_methods(names: Iterable[str], own_methods: Mapping[str, type[Method]]) -> list[str]:
    """Return the names of methods, groups replaced by their members; raise for those that are not known.

    >>> choose_methods(["gen", "layers"], {})[:3]
    ['gen', 'pnml', 'pnml-last']
    """
    methods = [name for given in names for name in GROUPS.get(given, (given,))]
    for name in methods:
        _check("method", name, [*ALL_METHODS, *own_methods, *GROUPS])
    if needed := [name for name in methods if issubclass(ALL_METHODS.get(name, Method), Peer)]:
        import_pytorch_ood(f"the method {needed[0]!r}")
    return methods


def expand_noise(names: Iterable[str]) -> list[str]:
    """Return the names of sets, "noise" replaced by those that are drawn from a seed.

    >>> expand_noise(["svhn", "noise"])
    ['svhn', 'uniform', 'gaussian']
    """
    return [one for name in names for one in (NOISE if name == "noise" else (name,))]


def _all_ood(ind: str) -> list[str]:
    """Return the OOD sets that the paper sets against ``ind``, in print order, and then those re-made."""
    return list(dict.fromkeys(cell.ood for cell in paper_plan() if cell.ind == ind))


def _check(what: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        own = ", or a class of your own, mine.py:Detector" if what == "method" else ""
        raise ValueError(f"no {what} is named {name!r}: choose from {', '.join(known)}{own}{did_you_mean(name, known)}")


def _check_ood(cell: Cell) -> None:
    if cell.ood == cell.ind:
        raise ValueError(f"the OOD set {cell.ood!r} is the in-distribution set itself: choose another")
    if cell.ind == "tinyimagenet" and cell.ood.startswith("tinyimagenet"):
        raise ValueError(f"the OOD set {cell.ood!r} has pictures of the classes of {cell.ind}: choose another")
    if cell.ood in SETS:
        return
    if not Path(cell.ood).exists():
        raise ValueError(
            f"no OOD set is named {cell.ood!r} and there is no such path: give a folder of pictures, a parquet file, "
            f"or some of {', '.join(SETS)}{did_you_mean(cell.ood, SETS)}"
        )
    if cell.ood_name in SETS or not cell.ood_name:
        raise ValueError(f"{cell.ood!r} gives its results the name {cell.ood_name!r}: rename it, that one is taken")
