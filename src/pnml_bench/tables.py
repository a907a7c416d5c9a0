"""The paper's tables, with our numbers, the paper's and the difference.

:mod:`pnml_bench.render` writes them as Markdown, LaTeX, CSV or HTML.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple, dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from pnml.report.labels import label
from pnml_bench.paper import REMADE, PaperCell, paper_cells
from pnml_bench.results import NO_IMAGES, NO_WEIGHTS, PAPER_STUDY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pnml_bench.paper import PaperCell
    from pnml_bench.results import Result


Network = Literal["paper's", "retrained"]
"""Whose training a network is of: the paper's own, or ours."""

RETRAINED_STUDY = "retrained"
_NO_NETWORK = "the authors' checkpoint cannot be downloaded, and no result of a network trained in its place is shown"
_ORACLE, _PUBLISHED = "-oracle", "-published"
Key = tuple[str, str, str, str]


def base_study(study: str) -> str:
    """Return the name of a study without what the oracle and the published arithmetic add to it.

    >>> base_study("paper-oracle-published")
    'paper'
    """
    return study.removesuffix(_PUBLISHED).removesuffix(_ORACLE)


@dataclass(frozen=True)
class Measured:
    """The results of one cell.

    Attributes:
        main: as the paper has it.
        published: with +pNML by the published arithmetic, None where that was not run.
        without_oracle: of ODIN with an ε that knows no OOD images.
        network: which was measured.
    """

    main: Result
    published: Result | None
    without_oracle: Result | None
    network: Network


class Sources:
    """The results that the tables are made of.

    Args:
        results: of all studies.
        study: of the paper's own networks.
        retrained: of networks trained anew; "" for none.
    """

    def __init__(self, results: Iterable[Result], study: str = PAPER_STUDY, retrained: str = RETRAINED_STUDY) -> None:
        self._networks: dict[str, Network] = {study: "paper's"}
        if retrained:
            self._networks[retrained] = "retrained"
        self._results: dict[tuple[str, Key], Result] = {}
        for result in results:
            if base_study(result.study) not in self._networks:
                continue
            if (result.study, result.key) in self._results:
                raise ValueError(f"there are two results of {result.cell_id} in {result.study}: give one for each cell")
            self._results[result.study, result.key] = result
        self.keys = {key for _, key in self._results}
        reasons = [result.reason or "" for result in self._results.values()]
        absent = {reason.removeprefix(NO_IMAGES) for reason in reasons if reason.startswith(NO_IMAGES)}
        measured = [result for result in self._results.values() if result.scores is not None]
        self._absent = absent - {name for result in measured for name in (result.ind, result.ood)}

    def find(self, cell: PaperCell) -> Measured | str:
        """Return the results of a cell, or the reason why there are none."""
        for study in self._networks:
            if (found := self._measured(study, cell.key)) is not None:
                return found
        for name in (cell.ind, cell.ood):
            if name in self._absent:
                return f"{NO_IMAGES}{label(name)}"
        reason = "no result"
        for study in self._networks:
            reason = self._reason(study, cell.key) or reason
        return _NO_NETWORK if reason.startswith(NO_WEIGHTS) else " ".join(reason.split())

    def _measured(self, study: str, key: Key) -> Measured | None:
        """Return the results of a cell in one study, also of a set that was made anew."""
        model, ind, ood, method = key
        oracle = _ORACLE if method == "odin" else ""
        for name in (ood, REMADE.get(ood, ood)):
            of_set = model, ind, name, method
            main = self._run(study + oracle, of_set)
            if main is None or (name in REMADE and "ood" in main.settings.get("notes", {})):
                continue
            published = self._run(study + oracle + _PUBLISHED, of_set)
            without_oracle = self._run(study, of_set) if oracle else None
            return Measured(main, published, without_oracle, self._networks[study])
        return None

    def _run(self, study: str, key: Key) -> Result | None:
        result = self._results.get((study, key))
        return None if result is None or result.scores is None else result

    def _reason(self, study: str, key: Key) -> str | None:
        """Return why a cell was not run, None where there is no record."""
        result = self._results.get((study + _ORACLE, key)) or self._results.get((study, key))
        if result is None:
            return None
        if result.scores is None:
            return result.reason
        if key[2] in REMADE:
            return f"{label(key[2])} of 2017 cannot be had, and {label(REMADE[key[2]])} was not run"
        return "ODIN was not run with the oracle (--oracle)"


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
    >>> from pnml_bench.tables import Sources
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


NETWORKS: dict[Network, str] = {"paper's": "the paper's own networks", "retrained": "networks trained anew"}
"""What a cell can be measured on, in words."""


@dataclass(frozen=True)
class Counts:
    """Cells of some tables.

    Attributes:
        cells: how many there are.
        measured: how many were measured on each kind of network.
        difference: the mean absolute differences to the paper on each kind of network, in points.
        reasons: how many were not run for each reason.
    """

    cells: int
    measured: dict[Network, int]
    difference: dict[Network, Numbers]
    reasons: dict[str, int]

    def __str__(self) -> str:
        run = sum(self.measured.values())
        text = f"{run} of {self.cells} cells measured"
        if run:
            text += ": " + ", ".join(f"{number} on {NETWORKS[kind]}" for kind, number in self.measured.items())
        if self.reasons:
            text += "; not run: " + ", ".join(f"{number} ({reason})" for reason, number in self.reasons.items())
        return text + "."

    @property
    def differences(self) -> list[str]:
        """A sentence about the mean absolute difference on each kind of network that was measured."""
        return [
            f"Mean absolute difference to the paper on {NETWORKS[kind]}: {_in_words(numbers)}."
            for kind, numbers in self.difference.items()
        ]


def count(tables: Sequence[Table]) -> Counts:
    """Count the cells of some tables and average their absolute differences.

    >>> from pnml_bench.tables import Sources
    >>> from pnml_bench.tables import build_tables
    >>> print(count(build_tables(Sources([]))))
    0 of 664 cells measured; not run: 664 (no result).
    """
    cells = [cell for table in tables for cell in table.cells]
    by_network = {kind: [cell for cell in cells if cell.network == kind] for kind in NETWORKS}
    reasons = Counter(cell.reason for cell in cells if cell.reason is not None)
    return Counts(
        cells=len(cells),
        measured={kind: len(found) for kind, found in by_network.items() if found},
        difference={kind: mean_difference(found) for kind, found in by_network.items() if found},
        reasons=dict(reasons.most_common()),
    )


def mean_difference(cells: Iterable[Cell]) -> Numbers:
    """Return the mean absolute differences of some cells to the paper, in points."""
    columns = zip(*(astuple(cell.difference) for cell in cells), strict=True)
    means = ([abs(value) for value in column if value is not None] for column in columns)
    return Numbers(*(fmean(values) if values else None for values in means))


def _in_words(numbers: Numbers) -> str:
    names = "alone", "with pNML", "with pNML by the published arithmetic"
    parts = [f"{name} {value:.2f}" for name, value in zip(names, astuple(numbers), strict=True) if value is not None]
    return ", ".join(parts) + " points"
