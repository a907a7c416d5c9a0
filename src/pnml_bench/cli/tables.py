"""``pnml tables``: the paper's tables from the results of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from pnml.backend.files import write_text
from pnml.cli._app import Facts
from pnml_bench.cli._shared import ResultsOption, StudyOption, name_others
from pnml_bench.layout import OURS, header, lines, notes
from pnml_bench.paper import REMADE
from pnml_bench.render import Format, render
from pnml_bench.store import ResultStore, load_study
from pnml_bench.tables import (
    RETRAINED_STUDY,
    TABLE_NAMES,
    Cell,
    Numbers,
    Sources,
    Table,
    base_study,
    build_tables,
    count,
)

_STYLES = {"own": "bold", "retrained": "yellow", "none": "dim italic", "beside": "dim"}
"""How cells are drawn in a terminal, by the network that they were measured on."""


def tables(
    *,
    results: ResultsOption = Path("results"),
    study: StudyOption = None,
    retrained: Annotated[
        str, typer.Option(help="The study of networks trained anew, for cells whose networks cannot be had.")
    ] = RETRAINED_STUDY,
    out: Annotated[
        Path | None, typer.Option(help="Write files into this folder instead of printing.", file_okay=False)
    ] = None,
    form: Annotated[
        Format | None, typer.Option("--format", help="One format only; all of them go into --out otherwise.")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(help=f"One table only, may be repeated: {', '.join(TABLE_NAMES)}.")
    ] = None,
) -> Facts:
    """Render every table of the paper: ours, the paper's, and the difference.

    Without options it prints all eight tables, drawn for a terminal and as Markdown into a pipe.
    A cell is measured on the paper's own network or, marked, on one trained anew, or says why it was not run.
    ODIN's ε is chosen by the oracle, as in the paper; the line below has it without.

    Example: `pnml tables --results results --table densenet-auroc`

    Example: `pnml tables --format markdown --out docs/tables`
    """
    chosen_study = base_study(load_study(results, study)[0].study)
    sources = Sources(ResultStore(results).load(), chosen_study, "" if retrained == chosen_study else retrained)
    name_others(results, study, chosen_study, base_study)
    built = build_tables(sources)
    of_paper = _known_keys(built)
    if not sources.keys & of_paper:
        names = ", ".join(sorted({key[0] for key in sources.keys})[:5])
        raise ValueError(
            f"the study {chosen_study!r} has no result of the paper's tables, only of {names}: "
            f"pnml leaderboard --study {chosen_study} shows them"
        )
    if outside := sources.keys - of_paper:
        typer.echo(f"{len(outside)} of {len(sources.keys)} results have no cell in the paper's tables", err=True)
    chosen = _choose(built, table)
    counts, written = count(chosen), []
    if out is not None:
        for one in [form] if form else list(Format):
            written.append(write_text(out / one.file_name, render(chosen, one)))
            typer.echo(f"wrote {written[-1]}")
        typer.echo(counts)
    elif form is None and (console := Console()).is_terminal:
        for one_table in chosen:
            _draw(console, one_table)
        for sentence in (str(counts), *counts.differences):
            console.print(sentence, highlight=False)
    else:
        typer.echo(render(chosen, form or Format.MARKDOWN), nl=False)
    tables_of_cells = {table.name: [_as_facts(cell) for cell in table.cells] for table in chosen}
    return {"study": chosen_study, "counts": counts, "tables": tables_of_cells, "out": written}


def _known_keys(tables: list[Table]) -> set[tuple[str, ...]]:
    """Return the keys of results that the paper has cells for, also by the names of sets made anew."""
    keys = {cell.paper.key for table in tables for cell in table.cells}
    return keys | {(model, ind, REMADE[ood], method) for model, ind, ood, method in keys if ood in REMADE}


def _as_facts(cell: Cell) -> Facts:
    paper = Numbers(cell.paper.alone, cell.paper.plus_pnml)
    names = dict(zip(("model", "ind", "ood", "method"), cell.paper.key, strict=True))
    measured = {"ours": cell.ours, "without_oracle": cell.without_oracle, "network": cell.network}
    return {**names, "metric": cell.paper.metric, **measured, "paper": paper, "reason": cell.reason}


def _choose(built: list[Table], names: list[str] | None) -> list[Table]:
    if unknown := set(names or ()) - set(TABLE_NAMES):
        raise typer.BadParameter(
            f"no table {min(unknown)!r}: choose from {', '.join(TABLE_NAMES)}", param_hint="--table"
        )
    return [table for table in built if not names or table.name in names]


def _draw(console: Console, table: Table) -> None:
    drawn = RichTable(title=table.title, caption=table.caption)
    for heading in header(table):
        drawn.add_column(heading)
    for line in lines(table):
        if line.ind_span:
            drawn.add_section()
        styles = line.networks if line.kind == OURS else ["beside"] * len(line.cells)
        cells = [Text(cell, style=_STYLES[style]) for cell, style in zip(line.cells, styles, strict=True)]
        drawn.add_row(*line.texts[:3], *cells)
    console.print(drawn)
    for note in notes(table):
        console.print(note, markup=False, highlight=False)
