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
from pnml.bench.store import load_study
from pnml.bench.tables import TABLE_NAMES, Table, build_tables, summarise
from pnml.cli._errors import user_errors


def tables(
    results: Annotated[Path, typer.Option(help="Folder of results written by `pnml bench`.")] = Path("results"),
    study: Annotated[
        str | None, typer.Option(help="The study; by default the only one, or `paper`.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write files into this folder instead of printing.")] = None,
    form: Annotated[
        Format | None, typer.Option("--format", help="One format only; all of them go into --out otherwise.")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(help=f"One table only, may be repeated: {', '.join(TABLE_NAMES)}.")
    ] = None,
) -> None:
    """Render every table of the paper: ours, the paper's, and the difference.

    Without options it prints all eight tables, drawn for a terminal and as Markdown into a pipe.
    Cells that were not run say why.

    Example: `pnml tables --results results --table densenet-auroc`

    Example: `pnml tables --format markdown --out docs/tables`
    """
    with user_errors():
        records = load_study(results, study)
    built = build_tables(records)
    if outside := {record.key for record in records} - {cell.paper.key for one in built for cell in one.cells}:
        typer.echo(f"{len(outside)} of {len(records)} results have no cell in the paper's tables", err=True)
    chosen = _choose(built, table)
    if out is not None:
        for one in [form] if form else list(Format):
            typer.echo(f"wrote {_write(out / one.file_name, render(chosen, one))}")
        typer.echo(summarise(chosen))
    elif form is None and (console := Console()).is_terminal:
        for one_table in chosen:
            _draw(console, one_table)
        console.print(str(summarise(chosen)), highlight=False)
    else:
        typer.echo(render(chosen, form or Format.MARKDOWN), nl=False)


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
