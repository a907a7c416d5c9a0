"""The tables in the formats they can be written in."""

from __future__ import annotations

import csv
import io
from dataclasses import astuple
from enum import Enum
from typing import TYPE_CHECKING

from pnml_bench.layout import header, lines, markdown_table, notes
from pnml_bench.render_html import render_html
from pnml_bench.render_latex import render_latex
from pnml_bench.table_counts import count
from pnml_bench.tables import Numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml_bench.tables import Cell, Table


class Format(str, Enum):
    """What the tables can be written as."""

    MARKDOWN = "markdown"
    LATEX = "latex"
    CSV = "csv"
    HTML = "html"

    @property
    def file_name(self) -> str:
        """The name that its file gets in a folder."""
        suffixes = {Format.MARKDOWN: "md", Format.LATEX: "tex", Format.CSV: "csv", Format.HTML: "html"}
        return f"tables.{suffixes[self]}"


def render(tables: Sequence[Table], form: Format) -> str:
    """Write some tables in one format.

    >>> from pnml_bench.table_sources import Sources
    >>> from pnml_bench.tables import build_tables
    >>> print(render(build_tables(Sources([]))[:1], Format.CSV).splitlines()[1])
    densenet-auroc,densenet-bc-100,cifar100,isun,baseline,auroc,,,,,,,69.7,96.4,,,,not run,no result
    """
    renderers = {
        Format.MARKDOWN: render_markdown,
        Format.LATEX: render_latex,
        Format.CSV: render_csv,
        Format.HTML: render_html,
    }
    return renderers[form](tables)


def render_markdown(tables: Sequence[Table]) -> str:
    """Write Markdown that also reads well as plain text."""
    counts = count(tables)
    blocks = [" ".join([str(counts), *counts.differences])]
    for table in tables:
        grid = [header(table), *(line.texts for line in lines(table))]
        blocks += [f"### {table.title}", table.caption, markdown_table(grid)]
        blocks += ["\n".join(f"- {note}" for note in notes(table)).replace("<", "\\<")] if notes(table) else []
    return "\n\n".join(blocks) + "\n"


def render_csv(tables: Sequence[Table]) -> str:
    """Write one record per cell, for programs: names as in ``cells.csv``, numbers to four decimals."""
    names = ("table", "model", "ind", "ood", "method", "metric")
    kinds = ("", "_plus_pnml", "_published")
    numbers = [f"ours{kind}" for kind in kinds]
    numbers += ["no_oracle", "no_oracle_plus_pnml", "paper", "paper_plus_pnml"]
    numbers += [f"difference{kind}" for kind in kinds]

    def record(cell: Cell) -> tuple[object, ...]:
        beside = cell.without_oracle or Numbers()
        values = (*astuple(cell.ours), beside.alone, beside.plus_pnml, cell.paper.alone, cell.paper.plus_pnml)
        return (
            *(getattr(cell.paper, name) for name in names),
            cell.network,
            *(None if value is None else round(value, 4) for value in (*values, *astuple(cell.difference))),
            "run" if cell.reason is None else "not run",
            cell.reason,
        )

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*names, "network", *numbers, "status", "reason"))
    writer.writerows(record(cell) for table in tables for cell in table.cells)
    return text.getvalue()
