"""``pnml leaderboard``: one table per network from the results of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pnml.backend.files import atomic_path
from pnml.bench.leaderboard import leaderboard as boards_of
from pnml.bench.leaderboard import render_leaderboard
from pnml.bench.store import load_study
from pnml.cli._errors import user_errors


def leaderboard(
    results: Annotated[Path, typer.Option(help="Folder of results written by `pnml bench`.")] = Path("results"),
    study: Annotated[
        str | None, typer.Option(help="The study; by default the only one, or `paper`.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write this Markdown file instead of printing.")] = None,
) -> None:
    """Compare the methods on each network: mean AUROC near and far, seconds, memory.

    The results are those of `pnml bench --method peers`, and of any other method.

    Example: `pnml leaderboard --results results`

    Example: `pnml leaderboard --study peers --out docs/tables/leaderboard.md`
    """
    with user_errors():
        records = load_study(results, study)
    text = render_leaderboard(boards_of(records))
    if out is None:
        typer.echo(text, nl=False)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(out) as partial:
        partial.write_text(text, encoding="utf-8")
    typer.echo(f"wrote {out}")
