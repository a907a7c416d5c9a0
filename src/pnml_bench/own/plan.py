"""The cells of a benchmark on a network and sets of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pnml.backend.suggest import did_you_mean
from pnml_bench.data import SETS
from pnml_bench.own.names import name_of_file, same_path
from pnml_bench.own.pictures import PictureSource
from pnml_bench.protocol import Cell, choose_methods, expand_noise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pnml_bench.methods import Method
    from pnml_bench.own.benchmark import OwnBenchmark

_OF_THE_ZOO = ("odin", "gram", "oecc")
"""Methods that reach into networks of the zoo: for the scale of their inputs, their taps, or a tuned checkpoint."""


def plan_own(
    own: OwnBenchmark, ood: Sequence[str], method: Sequence[str], own_methods: Mapping[str, type[Method]]
) -> list[Cell]:
    """Return the cells of one's own network.

    Args:
        own: the network and its in-distribution sets.
        ood: paths, and for pictures also names of published sets, or "noise" for those that are drawn.
        method: names of methods, or of groups of them.
        own_methods: classes of one's own by name.
    """
    methods = choose_methods(method, own_methods)
    if inside := [name for name in methods if name in _OF_THE_ZOO]:
        raise ValueError(f"the method {inside[0]!r} is for the networks of the zoo: leave it out for your own")
    oods = expand_noise(ood)
    for name in oods:
        _check_ood(own, name)
    cells = list(dict.fromkeys(Cell(own.model, own.ind, name, one) for name in oods for one in methods))
    paths: dict[str, str] = {}
    for cell in cells:
        if paths.setdefault(cell.ood_name, cell.ood) != cell.ood:
            raise ValueError(
                f"{paths[cell.ood_name]!r} and {cell.ood!r} give their results one name, {cell.ood_name!r}: rename one"
            )
    return cells


def _check_ood(own: OwnBenchmark, name: str) -> None:
    if name == "all":
        raise ValueError("--ood all is for the sets of the paper: name the sets to tell apart from yours")
    if name == own.files.ind or (name not in SETS and same_path(name, own.files.ind, own.files.test)):
        raise ValueError(f"the OOD set {name!r} is an in-distribution set itself: choose another")
    if name in SETS and not isinstance(own.source, PictureSource):
        raise ValueError(f"the OOD set {name!r} holds pictures, and {own.train!r} does not: give a file like it")
    if name not in SETS and not Path(name).exists():
        known = (
            f", or some of {', '.join(SETS)}{did_you_mean(name, SETS)}" if isinstance(own.source, PictureSource) else ""
        )
        raise ValueError(f"there is no OOD set {name!r}: give a path{known}")
    if name not in SETS and name_of_file(name) in {"", *SETS}:
        raise ValueError(f"{name!r} gives its results the name {name_of_file(name)!r}: rename it, that one is taken")
