"""Leaderboards as LaTeX, to be read into a document that uses the package booktabs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml_bench.leaderboard import COLUMNS
from pnml_bench.render_latex import escape, latex_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml_bench.leaderboard import Board


def render_leaderboard_latex(boards: Sequence[Board]) -> str:
    r"""Write one ``table`` per board.

    >>> from pnml_bench.leaderboard import Board, Standing
    >>> board = Board("mine_create, photos", (), ("other",), (Standing("pnml", overall=99.25),), ())
    >>> render_leaderboard_latex([board]).splitlines()[6]
    'pnml & yes & -- & -- & 99.2 & -- & -- \\\\'
    """
    return "\n".join(["% \\usepackage{booktabs}", *map(_table, boards)]) + "\n"


def _table(board: Board) -> str:
    caption = " ".join([f"{board.title}.", board.caption, *(f"{note}." for note in board.notes)])
    return "\n".join(
        [
            r"\begin{table}",
            rf"\begin{{tabular}}{{ll{'r' * (len(COLUMNS) - 2)}}}",
            r"\toprule",
            latex_line(COLUMNS),
            r"\midrule",
            *(latex_line(standing.texts) for standing in board.standings),
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{escape(caption)}}}",
            r"\end{table}",
        ]
    )
