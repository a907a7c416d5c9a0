"""The tables of ``rows_a_class.py``: how far ``pnml`` is ahead of other methods, by the training rows of a class."""

from __future__ import annotations

from collections import defaultdict
from math import sqrt
from statistics import fmean, stdev
from typing import Any, NamedTuple

from pnml_bench.layout import markdown_table

OURS, PHOTOGRAPHS = "pnml", "lite0"
FROM = {True: 2, False: 4}  # rows of a class from which a rise counts: of photographs, and of small images


class Mean(NamedTuple):
    """The mean of several folds or networks, and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        sign = "−" if round(self.value, 1) < 0 else "+"
        return f"{sign}{abs(self.value):.1f} ± {self.error:.1f}"


Values = dict[str, float]
"""A number for each fold, or for each network."""


def mean(values: Values) -> Mean:
    return Mean(fmean(values.values()), stdev(values.values()) / sqrt(len(values)))


def minus(first: Values, second: Values) -> Values:
    return {key: value - second[key] for key, value in first.items()}


def aurocs(
    record: dict[str, Any], method: str, *, photographs: bool, kinds: tuple[str, ...] = ("near", "far")
) -> dict[int, Values]:
    """Return the AUROC (mean of kinds of sets) by the rows of a class, then by fold, or by network over its draws."""
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name, task in record["tasks"].items():
        network, count, number = name.split("/")
        if (network == PHOTOGRAPHS) is photographs:
            sets = task["auroc"][method].items()
            of_kinds = [fmean(value for ood, value in sets if ood.startswith(kind)) for kind in kinds]
            found[int(count)][number if photographs else network].append(fmean(of_kinds))
    most = max(map(len, found.values()))
    return {
        count: {unit: fmean(values) for unit, values in sorted(units.items())}
        for count, units in sorted(found.items())
        if len(units) == most  # numbers of rows that every network has
    }


def verdict(leads: dict[int, Values], *, photographs: bool) -> str:
    """Return what the plan of ``rows_a_class.py`` makes of the leads over a method: yes, no or against."""
    counted = [mean(values).value for count, values in leads.items() if count >= FROM[photographs]]
    rise = mean(minus(leads[max(leads)], leads[FROM[photographs]]))
    if rise.value < -2 * rise.error:
        return "against"
    shaped = counted == sorted(counted) if photographs else counted[0] < 0 < counted[-1]
    return "yes" if shaped and rise.value > 2 * rise.error else "no"


def side(record: dict[str, Any], *, photographs: bool) -> str:
    """Return the table of one side."""
    ours = aurocs(record, OURS, photographs=photographs)
    methods = dict.fromkeys(method for task in record["tasks"].values() for method in task["auroc"] if method != OURS)
    first, last = FROM[photographs], max(ours)
    grid = [("Ahead of", *map(str, ours), f"Rise from {first} to {last}", "Few rows the reason?")]
    for method in methods:
        theirs = aurocs(record, method, photographs=photographs)
        leads = {count: minus(values, theirs[count]) for count, values in ours.items()}
        rise = mean(minus(leads[last], leads[first]))
        cells = (str(mean(values)) for values in leads.values())
        grid.append((method, *cells, str(rise), verdict(leads, photographs=photographs)))
    own = (f"{fmean(values.values()):.1f}" for values in ours.values())
    grid.append(("AUROC of `pnml`", *own, str(mean(minus(ours[last], ours[first]))), ""))
    return markdown_table(grid)


def table(record: dict[str, Any]) -> str:
    """Return both sides."""
    networks = sorted({name.partition("/")[0] for name in record["tasks"]} - {PHOTOGRAPHS})
    return (
        "ImageNet with EfficientNet-Lite0, pictures of a class:\n\n"
        f"{side(record, photographs=True)}\n\n"
        f"CIFAR-100, training images of a class, {len(networks)} networks ({', '.join(networks)}):\n\n"
        f"{side(record, photographs=False)}\n"
    )
