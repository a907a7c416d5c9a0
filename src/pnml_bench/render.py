"""The paper's tables and leaderboards in the formats they can be written in.

LaTeX is to be read into a document that uses the packages booktabs and longtable; HTML is one page that needs nothing
but itself.
"""

from __future__ import annotations

import csv
import io
from dataclasses import astuple
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pnml.backend.extras import require
from pnml_bench.layout import header, lines, markdown_table, notes
from pnml_bench.leaderboard import COLUMNS
from pnml_bench.tables import Numbers, count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pnml_bench.leaderboard import Board
    from pnml_bench.tables import Cell, Table

_TEMPLATES = Path(__file__).parent / "templates"
_TEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "–": "--"}
    | {"†": r"$^\dagger$", "‡": r"$^\ddagger$", "×": r"$\times$", "ε": r"$\varepsilon$"}
)


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

    >>> from pnml_bench.tables import Sources
    >>> from pnml_bench.tables import build_tables
    >>> print(render(build_tables(Sources([]))[:1], Format.CSV).splitlines()[1])
    densenet-auroc,densenet-bc-100,cifar100,isun,baseline,auroc,,,,,,,69.7,96.4,,,,not run,no result
    """
    if form is Format.MARKDOWN:
        return render_markdown(tables)
    if form is Format.CSV:
        return render_csv(tables)
    about = {"counts": count(tables), "header": header, "lines": lines, "notes": notes}
    return _filled(form.file_name, tables=tables, **about)


def render_leaderboard_latex(boards: Sequence[Board]) -> str:
    r"""Write one LaTeX ``table`` per board.

    >>> from pnml_bench.leaderboard import Board, Standing
    >>> board = Board("mine_create, photos", (), ("other",), (Standing("pnml", overall=99.25),), ())
    >>> render_leaderboard_latex([board]).splitlines()[6]
    'pnml & yes & -- & -- & 99.2 & -- & -- \\\\'
    """
    return _filled("leaderboard.tex", boards=boards, columns=COLUMNS)


def _filled(template: str, **values: Any) -> str:
    """Return a template with its values."""
    jinja2 = require("jinja2", extra="bench", what="writing HTML and LaTeX")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=template.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # the usual braces are LaTeX's
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
    )
    environment.filters |= {"tex": _tex, "tex_line": _tex_line}
    text: str = environment.get_template(template).render(values)
    return text


def _tex(text: str) -> str:
    r"""Return text in which no character is a command of LaTeX.

    >>> _tex("mine_create: 5 %")
    'mine\\_create: 5 \\%'
    """
    return text.translate(_TEX)


def _tex_line(cells: Iterable[str]) -> str:
    """Return the cells of a row, and its end."""
    return " & ".join(map(_tex, cells)) + r" \\"


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
