"""The command line: one command per file."""

from __future__ import annotations

import typer

from pnml.cli import (
    bench,
    calibrate,
    data,
    demo,
    export,
    figures,
    fit,
    inspect,
    leaderboard,
    report,
    score,
    tables,
    train,
)

app = typer.Typer(
    name="pnml",
    help="Know when a classifier's answer cannot be trusted.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
)
for command in (
    demo.demo,
    fit.fit,
    calibrate.calibrate,
    score.score,
    inspect.inspect,
    export.export,
    report.report,
    bench.bench,
    leaderboard.leaderboard,
    tables.tables,
    train.train,
):
    app.command()(command)
app.add_typer(figures.figures_app)
app.add_typer(data.data_app, name="data")
