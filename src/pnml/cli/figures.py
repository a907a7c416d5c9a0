"""``pnml figures``: draw the paper's figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pnml.figures import iris, save, simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

figures_app = typer.Typer(
    name="figures",
    help="Draw the paper's figures as PNG and SVG.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Out = Annotated[Path, typer.Option("--out", help="Folder for the PNG and the SVG; made when it is not there.")]


@figures_app.command("iris")
def draw_iris(out: Out = Path("figures")) -> None:
    """Draw the ERM probability and the pNML regret of a single layer on two splits of the Iris flowers.

    Example: `pnml figures iris --out figures`
    """
    _write(iris.draw(), out, "iris")


@figures_app.command("simulation")
def draw_simulation(out: Out = Path("figures")) -> None:
    """Draw the regret of a two-class model against xᵀg, for three levels of certainty.

    Example: `pnml figures simulation --out figures`
    """
    _write(simulation.draw(), out, "simulation")


def _write(figure: Figure, out: Path, name: str) -> None:
    for path in save(figure, out, name):
        typer.echo(f"wrote {path}")
