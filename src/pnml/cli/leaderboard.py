"""``pnml leaderboard``: one table per network from a folder of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pnml.backend.files import atomic_path
from pnml.bench.leaderboard import leaderboard as boards_of
from pnml.bench.leaderboard import render_leaderboard
from pnml.bench.results import load_results


def leaderboard(
    results: Annotated[Path, typer.Option(help="Folder of results written by `pnml bench`.")] = Path("results"),
    out: Annotated[Path | None, typer.Option(help="Write this Markdown file instead of printing.")] = None,
) -> None:
    """Compare the methods on each network: mean AUROC near and far, seconds, memory.

    The results are those of `pnml bench --method peers`, and of any other method.

    Example: `pnml leaderboard --results results`

    Example: `pnml leaderboard --results results --out docs/tables/leaderboard.md`
    """
    try:
        records = load_results(results)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error), param_hint="--results") from error
    text = render_leaderboard(boards_of(records))
    if out is None:
        typer.echo(text, nl=False)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(out) as partial:
        partial.write_text(text, encoding="utf-8")
    typer.echo(f"wrote {out}")
