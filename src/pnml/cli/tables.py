"""``pnml tables``: the paper's tables from the results of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as RichTable

from pnml.backend.files import atomic_path
from pnml.bench.layout import header, lines, notes
from pnml.bench.render import Format, render
from pnml.bench.tables import TABLE_NAMES, Cell, Pair, Table, build_tables, summarise
from pnml.cli._app import Facts
from pnml.cli._network_options import ResultsOption, StudyOption
from pnml.cli._studies import load_chosen


def tables(
    results: ResultsOption = Path("results"),
    study: StudyOption = None,
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
    Cells that were not run say why.

    Example: `pnml tables --results results --table densenet-auroc`

    Example: `pnml tables --format markdown --out docs/tables`
    """
    records = load_chosen(results, study)
    built = build_tables(records)
    if outside := {record.key for record in records} - {cell.paper.key for one in built for cell in one.cells}:
        typer.echo(f"{len(outside)} of {len(records)} results have no cell in the paper's tables", err=True)
    chosen = _choose(built, table)
    written = []
    if out is not None:
        for one in [form] if form else list(Format):
            written.append(_write(out / one.file_name, render(chosen, one)))
            typer.echo(f"wrote {written[-1]}")
        typer.echo(summarise(chosen))
    elif form is None and (console := Console()).is_terminal:
        for one_table in chosen:
            _draw(console, one_table)
        console.print(str(summarise(chosen)), highlight=False)
    else:
        typer.echo(render(chosen, form or Format.MARKDOWN), nl=False)
    tables_of_cells = {table.name: [_as_facts(cell) for cell in table.cells] for table in chosen}
    return {"study": records[0].study, "tables": tables_of_cells, "out": written}


def _as_facts(cell: Cell) -> Facts:
    paper = Pair(cell.paper.alone, cell.paper.plus_pnml)
    names = dict(zip(("model", "ind", "ood", "method"), cell.paper.key, strict=True))
    return {**names, "metric": cell.paper.metric, "ours": cell.ours, "paper": paper, "reason": cell.reason}


def _choose(built: list[Table], names: list[str] | None) -> list[Table]:
    if unknown := set(names or ()) - set(TABLE_NAMES):
        raise typer.BadParameter(
            f"no table {min(unknown)!r}: choose from {', '.join(TABLE_NAMES)}", param_hint="--table"
        )
    return [table for table in built if not names or table.name in names]


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def _draw(console: Console, table: Table) -> None:
    drawn = RichTable(title=table.title, caption=table.caption)
    for heading in header(table):
        drawn.add_column(heading)
    for line in lines(table):
        if line.ind_span:
            drawn.add_section()
        drawn.add_row(*line.texts, style="" if line.kind == "ours" else "dim")
    console.print(drawn)
    for number, reason in enumerate(notes(table), start=1):
        console.print(f"({number}) not run: {reason}", markup=False, highlight=False)
