"""What the benchmark brings to the command line of ``pnml``, which looks for this module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml.cli._app import Command, common_options
from pnml_bench.cli import bench, data, figures, leaderboard, tables, train
from pnml_bench.cli.report import report_of_results

if TYPE_CHECKING:
    import typer

__all__ = ["join", "report_of_results"]


def join(app: typer.Typer) -> None:
    """Add the commands of the benchmark to an app."""
    for command in (bench.bench, leaderboard.leaderboard, tables.tables, train.train):
        app.command(cls=Command)(common_options(command))
    app.add_typer(figures.figures_app)
    app.add_typer(data.data_app, name="data")
