"""The tables as LaTeX, to be read into a document that uses the packages booktabs and longtable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml_bench.layout import header, lines, notes
from pnml_bench.table_counts import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pnml_bench.tables import Table

_ESCAPES = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "–": "--"}
    | {"†": r"$^\dagger$", "‡": r"$^\ddagger$", "×": r"$\times$", "ε": r"$\varepsilon$"}
)


def render_latex(tables: Sequence[Table]) -> str:
    r"""Write one ``longtable`` per table, with a rule between the in-distribution sets.

    >>> from pnml_bench.table_sources import Sources
    >>> from pnml_bench.tables import build_tables
    >>> render_latex(build_tables(Sources([]))[3:4]).splitlines()[3]
    '\\begin{longtable}{lllcc}'
    """
    opening = [f"% \\usepackage{{booktabs,longtable}}. {count(tables)}", r"\begingroup\scriptsize"]
    return "\n".join([*opening, *(_table(table) for table in tables), r"\endgroup"]) + "\n"


def _table(table: Table) -> str:
    text = [
        r"\setlength{\tabcolsep}{4pt}",
        rf"\begin{{longtable}}{{lll{'c' * len(table.columns)}}}",
        rf"\caption{{{escape(f'{table.title}. {table.caption}')}}}\label{{tab:{table.name}}}\\",
        r"\toprule",
        latex_line(header(table)),
        r"\midrule",
        r"\endhead",
        r"\bottomrule",
        r"\endfoot",
    ]
    for i, line in enumerate(lines(table)):
        text += [r"\midrule"] if line.ind_span and i else []
        text.append(latex_line(line.texts))
    text.append(r"\end{longtable}")
    if below := notes(table):
        text += [r"\begin{itemize}", *(rf"\item {escape(note)}" for note in below), r"\end{itemize}"]
    return "\n".join(text)


def latex_line(cells: Iterable[str]) -> str:
    """Return the cells of a row, and its end."""
    return " & ".join(map(escape, cells)) + r" \\"


def escape(text: str) -> str:
    r"""Return text in which no character is a command.

    >>> escape("mine_create: 5 %")
    'mine\\_create: 5 \\%'
    """
    return text.translate(_ESCAPES)
