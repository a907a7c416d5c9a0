"""The table of ``why_imagenet.py``: what each change of the score does on photographs, and what on CIFAR-100."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from family_rows import OURS, Mean, Values, aurocs, mean, minus

from pnml_bench.layout import markdown_table

AHEAD = ("mahalanobis-layers", "nnguide", "mahalanobis-plus")
KINDS = ("near", "far")
FEW, MANY = 4, 100  # training rows of a class
COLUMNS = (
    "Change",
    "Near",
    "Mean",
    "Of the gap",
    "CIFAR-100: near",
    "CIFAR-100: mean",
    "Mean, 4 rows",
    "4 minus 100 rows",
)


def gains(
    record: dict[str, Any], method: str, rows: int = FEW, *, photographs: bool = True, kinds: tuple[str, ...] = KINDS
) -> Values:
    """Return how far a method is ahead of ``pnml``, for each fold or network."""
    theirs, ours = (aurocs(record, name, photographs=photographs, kinds=kinds)[rows] for name in (method, OURS))
    return minus(theirs, ours)


def gap(record: dict[str, Any]) -> float:
    """Return how far ``pnml`` is behind the three peers on photographs, on average."""
    return fmean(mean(gains(record, peer)).value for peer in AHEAD)


def verdict(gain: Mean, gap: float) -> str:
    """Return what a gain on photographs is of the gap, by the plan."""
    if gain.value < -2 * gain.error:
        return "widens it"
    if gain.value <= 2 * gain.error:
        return "nothing"
    return "half or more" if gain.value >= gap / 2 else "less than half"


def table(record: dict[str, Any]) -> str:
    """Return a line for each change, those that gain most first, and one for each peer."""
    names = dict.fromkeys(name for task in record["tasks"].values() for name in task["auroc"] if name != OURS)
    on_photographs = {name: mean(gains(record, name)) for name in names}
    changes = sorted((name for name in names if name not in AHEAD), key=lambda name: -on_photographs[name].value)
    behind, grid = gap(record), [COLUMNS]
    for name in (*changes, *AHEAD):
        near = mean(gains(record, name, kinds=("near",)))
        near_elsewhere = gains(record, name, MANY, photographs=False, kinds=("near",))
        many, few = (gains(record, name, rows, photographs=False) for rows in (MANY, FEW))
        elsewhere = (mean(values) for values in (near_elsewhere, many, few, minus(few, many)))
        answer = "peer" if name in AHEAD else verdict(on_photographs[name], behind)
        grid.append((name, str(near), str(on_photographs[name]), answer, *map(str, elsewhere)))
    return f"{markdown_table(grid)}\n"
