"""The command line: one command per file."""

from __future__ import annotations

import typer

from pnml.cli.data import data_app
from pnml.cli.figures import figures_app
from pnml.cli.tables import tables

app = typer.Typer(
    name="pnml",
    help="Know when a classifier's answer cannot be trusted.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
)

app.add_typer(data_app, name="data")
app.add_typer(figures_app)
app.command()(tables)
