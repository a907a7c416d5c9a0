"""The paper's own numbers: all eight tables, 664 cells, each with and without pNML.

The cells stand in the packaged ``paper_tables.csv`` in the order in which the paper prints them. They are as printed,
including ImageNet-30 → CIFAR-100 on ResNet-18, where both numbers are 92.15: the second is most likely a slip. The
text counts 6 cells of TNR in which ODIN is better alone; the tables have 4, those of its figure.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

REMADE = {"tinyimagenet_resize": "tinyimagenet_resize_nearest"}
"""Sets that were made anew, by the name of the set of the paper that they stand for, which cannot be had."""


@dataclass(frozen=True)
class PaperCell:
    """One cell of one table: a metric, in percent, of a method alone and with pNML."""

    table: str
    model: str
    ind: str
    ood: str
    method: str
    metric: str
    alone: float
    plus_pnml: float

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The run this cell belongs to, as ``Result.key`` names it: model, ind, ood, method."""
        return self.model, self.ind, self.ood, self.method


@cache
def paper_cells() -> tuple[PaperCell, ...]:
    """Return every cell of the paper's tables, in print order.

    >>> len(paper_cells())
    664
    >>> cell = paper_cells()[0]
    >>> cell.model, cell.ind, cell.ood, cell.method, cell.metric, cell.alone, cell.plus_pnml
    ('densenet-bc-100', 'cifar100', 'isun', 'baseline', 'auroc', 69.7, 96.4)
    """
    text = files("pnml_bench").joinpath("paper_tables.csv").read_text(encoding="utf-8")
    names = ("table", "model", "ind", "ood", "method", "metric")
    return tuple(
        PaperCell(**{name: row[name] for name in names}, alone=float(row["alone"]), plus_pnml=float(row["plus_pnml"]))
        for row in csv.DictReader(text.splitlines())
    )
