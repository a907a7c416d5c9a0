"""``pnml leaderboard``: one table per network from the results of a study."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pnml.backend.files import write_text
from pnml.cli._app import Facts
from pnml_bench.cli._shared import ResultsOption, StudyOption, load_chosen
from pnml_bench.leaderboard import leaderboard as boards_of
from pnml_bench.leaderboard import render_leaderboard
from pnml_bench.render import render_leaderboard_latex

if TYPE_CHECKING:
    from pnml_bench.results import Result


def leaderboard(
    results: ResultsOption = Path("results"),
    study: StudyOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Write this file instead of printing: LaTeX if it ends in .tex, or Markdown.")
    ] = None,
) -> Facts:
    """Compare the methods on each network: mean AUROC near and far, seconds, memory.

    The results are those of `pnml bench --method peers`, and of any other method.

    Example: `pnml leaderboard --results results`

    Example: `pnml leaderboard --study own --out table.tex`

    Example: `pnml leaderboard --study peers-2026-11 --out docs/tables/leaderboard.md`
    """
    if out is not None and out.is_dir():
        raise typer.BadParameter(
            f"{out} is a folder, and a file is written: --results {shlex.quote(str(out))} names a folder of results",
            param_hint="--out",
        )
    records = load_chosen(results, study)
    boards = boards_of(records)
    if not boards:
        raise ValueError(_nothing_to_compare(records))
    if out is None:
        typer.echo(render_leaderboard(boards), nl=False)
    else:
        render = render_leaderboard_latex if out.suffix == ".tex" else render_leaderboard
        typer.echo(f"wrote {write_text(out, render(boards))}")
    return {"study": records[0].study, "boards": boards, "out": out}


def _nothing_to_compare(records: list[Result]) -> str:
    """Return why a study has no leaderboard."""
    methods = sorted({record.method for record in records if record.scores is not None})
    found = f"results of {methods[0]} alone" if methods else "no result that was run"
    return (
        f"the study {records[0].study!r} has {found}, and a leaderboard compares several methods on one network: "
        "run more, as pnml bench --method baseline,energy,pnml"
    )
