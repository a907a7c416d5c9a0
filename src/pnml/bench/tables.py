"""The paper's tables, with our numbers, the paper's and the difference.

:mod:`pnml.bench.render` writes them as Markdown, LaTeX, CSV or HTML.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from pnml.bench.paper import PaperCell, paper_cells
from pnml.report.labels import label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pnml.bench.results import Result

_TITLES = {
    "densenet-auroc": "DenseNet-BC-100: AUROC",
    "resnet-auroc": "ResNet-34: AUROC",
    "wideresnet-energy": "WideResNet-40-2: the energy-tuned network",
    "imagenet30": "ImageNet-30: AUROC",
    "densenet-tnr": "DenseNet-BC-100: TNR at TPR 95%",
    "densenet-detection": "DenseNet-BC-100: detection accuracy",
    "resnet-tnr": "ResNet-34: TNR at TPR 95%",
    "resnet-detection": "ResNet-34: detection accuracy",
}
TABLE_NAMES = tuple(_TITLES)
"""The tables in the paper's order: 1 to 4 stand in its main part, 5 to 8 in its appendix."""


@dataclass(frozen=True)
class Pair:
    """A number, in percent or points, for a method alone and with pNML; None where there is none."""

    alone: float | None = None
    plus_pnml: float | None = None


@dataclass(frozen=True)
class Cell:
    """One cell of a table: the paper's pair, and ours or the reason why there is none."""

    paper: PaperCell
    ours: Pair = Pair()
    reason: str | None = None

    @property
    def difference(self) -> Pair:
        """Ours minus the paper's, in points."""
        return Pair(
            None if self.ours.alone is None else self.ours.alone - self.paper.alone,
            None if self.ours.plus_pnml is None else self.ours.plus_pnml - self.paper.plus_pnml,
        )


@dataclass(frozen=True)
class Row:
    """The cells of one IND-OOD pair, one per column."""

    ind: str
    ood: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """One table of the paper: headings of its columns of cells, and a row for each IND-OOD pair."""

    name: str
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells, row by row."""
        return tuple(cell for row in self.rows for cell in row.cells)


def build_tables(results: Iterable[Result]) -> list[Table]:
    """Return the paper's eight tables with these results; results that it has no cell for are left out.

    >>> from pnml.metrics import evaluate
    >>> from pnml.bench.results import Result, Scores
    >>> scores = Scores(evaluate([1, 2, 4], [3, 5]), plus_pnml=evaluate([1, 2, 3], [4, 5]))
    >>> run = Result(model="densenet-bc-100", ind="cifar10", ood="svhn", method="baseline", scores=scores)
    >>> table = build_tables([run])[0]
    >>> table.title, [cell.ours.plus_pnml for cell in table.cells if cell.reason is None]
    ('DenseNet-BC-100: AUROC', [100.0])
    """
    by_key: dict[tuple[str, ...], Result] = {}
    for result in results:
        if result.key in by_key:
            raise ValueError(f"there are two results of {result.cell_id}: give one for each cell")
        by_key[result.key] = result
    return [_build(number, name, by_key) for number, name in enumerate(TABLE_NAMES, start=1)]


@dataclass(frozen=True)
class Summary:
    """How many cells were run, and how far they lie from the paper's on average, in points."""

    run: int
    not_run: int
    difference: Pair

    def __str__(self) -> str:
        text = f"{self.run + self.not_run} cells: {self.run} run, {self.not_run} not run"
        if self.difference.alone is not None:
            text += f"; mean absolute difference to the paper {self.difference.alone:.2f} points"
        if self.difference.plus_pnml is not None:
            text += f", with pNML {self.difference.plus_pnml:.2f}"
        return text + "."


def summarise(tables: Sequence[Table]) -> Summary:
    """Count the cells of some tables and average their absolute differences.

    >>> print(summarise(build_tables([])))
    664 cells: 0 run, 664 not run.
    """
    cells = [cell for table in tables for cell in table.cells]
    run = [cell.difference for cell in cells if cell.reason is None]
    alone = [abs(pair.alone) for pair in run if pair.alone is not None]
    plus_pnml = [abs(pair.plus_pnml) for pair in run if pair.plus_pnml is not None]
    return Summary(
        run=len(run),
        not_run=len(cells) - len(run),
        difference=Pair(fmean(alone) if alone else None, fmean(plus_pnml) if plus_pnml else None),
    )


def _build(number: int, name: str, by_key: dict[tuple[str, ...], Result]) -> Table:
    paper = [cell for cell in paper_cells() if cell.table == name]
    rows: dict[tuple[str, str], list[Cell]] = {}
    for cell in paper:
        rows.setdefault((cell.ind, cell.ood), []).append(_cell(cell, by_key.get(cell.key)))
    first = next(iter(rows.values()))
    methods = list(dict.fromkeys(cell.method for cell in paper))
    if len(methods) > 1:
        columns, entry = [f"{label(method)} / +pNML" for method in methods], "a method alone / with pNML"
    else:
        by = "metric" if len({cell.metric for cell in paper}) > 1 else "model"
        columns = [label(getattr(cell.paper, by)) for cell in first]
        entry = f"{label(methods[0])} alone / with pNML"
    part = "paper" if number <= 4 else "paper's appendix"
    return Table(
        name=name,
        title=_TITLES[name],
        caption=f"Table {number} of the {part}, in percent: {entry}. The difference is ours minus the paper's.",
        columns=tuple(columns),
        rows=tuple(Row(ind, ood, tuple(cells)) for (ind, ood), cells in rows.items()),
    )


def _cell(paper: PaperCell, result: Result | None) -> Cell:
    if result is None or result.scores is None:
        reason = (result.reason if result else None) or "no result"
        return Cell(paper, reason=" ".join(reason.split()))
    plus = result.scores.plus_pnml
    ours = Pair(getattr(result.scores.method, paper.metric), None if plus is None else getattr(plus, paper.metric))
    return Cell(paper, ours)
