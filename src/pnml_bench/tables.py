"""The paper's tables, with our numbers, the paper's and the difference.

:mod:`pnml_bench.render` writes them as Markdown, LaTeX, CSV or HTML.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING

from pnml.report.labels import label
from pnml_bench.paper import PaperCell, paper_cells

if TYPE_CHECKING:
    from pnml_bench.results import Result
    from pnml_bench.table_sources import Network, Sources

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
class Numbers:
    """A metric, in percent, or differences of it, in points; None where there is none.

    Attributes:
        alone: of a method alone.
        plus_pnml: with pNML.
        published: with pNML by the arithmetic of the published code.
    """

    alone: float | None = None
    plus_pnml: float | None = None
    published: float | None = None

    def minus(self, paper: PaperCell) -> Numbers:
        """Return the differences to the paper's numbers."""
        theirs = paper.alone, paper.plus_pnml, paper.plus_pnml
        return Numbers(*(None if a is None else a - b for a, b in zip(astuple(self), theirs, strict=True)))


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        paper: the paper's numbers.
        ours: measured as the paper did, ODIN by the oracle.
        without_oracle: ODIN with an ε that knows no OOD images; for ODIN only.
        network: whose training the network is of, None for a cell that was not run.
        ood: the set that was measured, which may be one made anew.
        notes: what is special about the images that were measured.
        reason: why it was not run.
    """

    paper: PaperCell
    ours: Numbers = Numbers()
    without_oracle: Numbers | None = None
    network: Network | None = None
    ood: str = ""
    notes: dict[str, str] = field(default_factory=dict)
    reason: str | None = None

    @property
    def difference(self) -> Numbers:
        """Ours minus the paper's, in points."""
        return self.ours.minus(self.paper)


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


def build_tables(sources: Sources) -> list[Table]:
    """Return the paper's eight tables; results that it has no cell for are left out.

    >>> from pnml.metrics import evaluate
    >>> from pnml_bench.results import Result, Scores
    >>> scores = Scores(evaluate([1, 2, 4], [3, 5]), plus_pnml=evaluate([1, 2, 3], [4, 5]))
    >>> from pnml_bench.table_sources import Sources
    >>> run = Result(model="densenet-bc-100", ind="cifar10", ood="svhn", method="baseline", scores=scores)
    >>> table = build_tables(Sources([run]))[0]
    >>> table.title, [cell.ours.plus_pnml for cell in table.cells if cell.reason is None]
    ('DenseNet-BC-100: AUROC', [100.0])
    """
    return [_build(number, name, sources) for number, name in enumerate(TABLE_NAMES, start=1)]


def _build(number: int, name: str, sources: Sources) -> Table:
    paper = [cell for cell in paper_cells() if cell.table == name]
    rows: dict[tuple[str, str], list[Cell]] = {}
    for cell in paper:
        rows.setdefault((cell.ind, cell.ood), []).append(_cell(cell, sources))
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
        caption=(
            f"Table {number} of the {part}, in percent: {entry} / with pNML by the published arithmetic. "
            "The difference is ours minus the paper's."
        ),
        columns=tuple(columns),
        rows=tuple(Row(ind, ood, tuple(cells)) for (ind, ood), cells in rows.items()),
    )


def _cell(paper: PaperCell, sources: Sources) -> Cell:
    found = sources.find(paper)
    if isinstance(found, str):
        return Cell(paper, reason=found)
    return Cell(
        paper,
        _numbers(paper.metric, found.main, found.published),
        None if found.without_oracle is None else _numbers(paper.metric, found.without_oracle, None),
        found.network,
        found.main.ood,
        found.main.settings.get("notes", {}),
    )


def _numbers(metric: str, result: Result, published: Result | None) -> Numbers:
    scores, other = result.scores, None if published is None else published.scores
    measured = scores and scores.method, scores and scores.plus_pnml, other and other.plus_pnml
    return Numbers(*(None if one is None else getattr(one, metric) for one in measured))
