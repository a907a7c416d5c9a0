"""The table of ``why_imagenet.py``: what each change of the score does on photographs, and what on CIFAR-100."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from family_rows import OURS, Mean, aurocs, mean, minus

from pnml.bench.layout import markdown_table

AHEAD = ("mahalanobis-layers", "nnguide", "mahalanobis-plus")
BOTH = ("near", "far")


def difference(record: dict[str, Any], method: str, *, photographs: bool = True, kinds: tuple[str, ...] = BOTH) -> Mean:
    """Return how far a method is ahead of ``pnml``, over folds or over networks."""
    theirs, ours = (aurocs(record, name, photographs=photographs, kinds=kinds) for name in (method, OURS))
    (values,), (own,) = theirs.values(), ours.values()
    return mean(minus(values, own))


def gap(record: dict[str, Any]) -> float:
    """Return how far ``pnml`` is behind the three peers on average."""
    return fmean(difference(record, peer).value for peer in AHEAD)


def verdict(gain: Mean, gap: float) -> str:
    """Return what the plan makes of a gain on photographs."""
    if gain.value < -2 * gain.error:
        return "loses"
    if gain.value <= 2 * gain.error:
        return "no"
    return "the cause" if gain.value >= gap / 2 else "a part"


def table(record: dict[str, Any]) -> str:
    """Return a line for each change, those that gain most first, and one for each peer."""
    names = dict.fromkeys(name for task in record["tasks"].values() for name in task["auroc"] if name != OURS)
    gains = {name: difference(record, name) for name in names}
    changes = sorted((name for name in names if name not in AHEAD), key=lambda name: -gains[name].value)
    behind, grid = gap(record), [("Change", "Near", "Far", "Mean", "Cause?", "Mean on CIFAR-100")]
    for name in (*changes, *AHEAD):
        near, far = (str(difference(record, name, kinds=(kind,))) for kind in BOTH)
        elsewhere = str(difference(record, name, photographs=False))
        answer = "" if name in AHEAD else verdict(gains[name], behind)
        grid.append((name, near, far, str(gains[name]), answer, elsewhere))
    return f"{markdown_table(grid)}\n"
