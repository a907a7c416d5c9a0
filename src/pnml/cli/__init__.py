"""The command line: one command per file."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Annotated

import typer

from pnml._version import __version__
from pnml.cli import calibrate, demo, export, fit, inspect, monitor, report, score
from pnml.cli._app import App, Command, Facts, common_options
from pnml.cli._benchmark import benchmark

app = typer.Typer(
    name="pnml",
    cls=App,
    no_args_is_help=True,
    invoke_without_command=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


@app.callback()
@common_options
def pnml(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version; with --json also others.")] = False,
) -> Facts:
    """Know when a classifier's answer cannot be trusted.

    Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 an alarm of pnml monitor, 130 interrupted.

    Example: `pnml demo`
    """
    if context.invoked_subcommand is not None:
        if version:
            context.fail("--version goes without a command")
        return {}
    if not version:
        context.fail("give a command, as pnml demo")
    typer.echo(f"pnml {__version__}")
    return {"pnml": __version__, "python": platform.python_version(), **_installed("numpy", "torch", "scikit-learn")}


def _installed(*packages: str) -> dict[str, str | None]:
    """Return the versions of packages, None for those that are not installed."""
    installed = {one.name: one.version for one in metadata.distributions()}
    return {package: installed.get(package) for package in packages}


for command in (
    demo.demo,
    fit.fit,
    calibrate.calibrate,
    score.score,
    inspect.inspect,
    export.export,
    report.report,
    monitor.monitor,
):
    app.command(cls=Command)(common_options(command))
more = benchmark()
if more is not None:
    more.join(app)
