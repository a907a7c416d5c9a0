"""``pnml figures``: draw the paper's figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pnml.backend.extras import require
from pnml.backend.files import write_text
from pnml.cli._app import App, Command, Facts, common_options
from pnml_bench.figures import gram_vs_pnml, histograms, iris, save, simulation, spectrum, tpr_tnr
from pnml_bench.figures._comparison import kept_comparison, kept_spectra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pnml_bench.figures._comparison import Comparison

figures_app = typer.Typer(
    name="figures",
    cls=App,
    help="Draw the paper's figures as PNG and SVG.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Out = Annotated[Path, typer.Option("--out", help="The folder for the PNG and the SVG.", file_okay=False)]
KeptScores = Annotated[
    list[Path],
    typer.Option(
        "--scores",
        help="A file that `pnml bench --keep-scores` wrote; may be repeated.",
        exists=True,
        dir_okay=False,
    ),
]


@figures_app.command("iris", cls=Command)
@common_options
def draw_iris(out: Out = Path("figures")) -> Facts:
    """Draw the ERM probability and the pNML regret of a single layer on two splits of the Iris flowers.

    Example: `pnml figures iris --out figures`
    """
    _require_matplotlib()
    return {"figures": _write(iris.draw(), out, "iris")}


@figures_app.command("simulation", cls=Command)
@common_options
def draw_simulation(out: Out = Path("figures")) -> Facts:
    """Draw the regret of a two-class model against xᵀg, for three levels of certainty.

    Example: `pnml figures simulation --out figures`
    """
    _require_matplotlib()
    return {"figures": _write(simulation.draw(), out, "simulation")}


@figures_app.command("spectrum", cls=Command)
@common_options
def draw_spectrum(*, scores: KeptScores, out: Out = Path("figures")) -> Facts:
    """Draw the eigenvalues of the training embeddings' correlation: a panel for each network, a line for each set.

    Example: `pnml figures spectrum --scores results/scores/paper/densenet-bc-100__cifar10__svhn__baseline.safetensors`
    """
    _require_matplotlib()
    return {"figures": _write(spectrum.draw(kept_spectra(scores)), out, "spectrum")}


@figures_app.command("gram-vs-pnml", cls=Command)
@common_options
def draw_gram_vs_pnml(*, scores: KeptScores, out: Out = Path("figures")) -> Facts:
    """Draw the regret of Gram+pNML against the Gram score, and count which samples each of them gets wrong.

    The counts are printed, and written to a JSON file beside the picture.

    Example: `pnml figures gram-vs-pnml --scores results/scores/paper/densenet-bc-100__cifar10__svhn__gram.safetensors`
    """
    (comparison, *more) = _comparisons(scores)
    if more:
        raise typer.BadParameter(f"the figure is of one pair, got {len(scores)} files", param_hint="--scores")
    counts = gram_vs_pnml.count(comparison.alone, comparison.plus_pnml)
    written = _write(gram_vs_pnml.draw(comparison), out, "gram-vs-pnml")
    target = out / "gram-vs-pnml.json"
    about = {
        "model": comparison.model,
        "ind": comparison.ind,
        "ood": comparison.ood,
        "method": comparison.method,
    }
    if gram_vs_pnml.is_of_the_paper(comparison):
        at_paper = gram_vs_pnml.count(comparison.alone, comparison.plus_pnml, gram_vs_pnml.PAPER_THRESHOLDS)
        counts["at_thresholds_of_the_paper"] = at_paper
    write_text(target, json.dumps(about | counts, indent=2) + "\n")
    typer.echo(f"wrote {target}")
    for sentence in gram_vs_pnml.describe(counts):
        typer.echo(sentence)
    return {"figures": written, "counts": target, **about, **counts}


@figures_app.command("tpr-tnr", cls=Command)
@common_options
def draw_tpr_tnr(*, scores: KeptScores, out: Out = Path("figures")) -> Facts:
    """Draw TNR against TPR of a method alone and with pNML, one panel for each file of scores.

    Example: `pnml figures tpr-tnr --scores results/scores/paper-oracle/resnet-34__cifar100__isun__odin.safetensors`
    """
    return {"figures": _write(tpr_tnr.draw(_comparisons(scores)), out, "tpr-tnr")}


@figures_app.command("histograms", cls=Command)
@common_options
def draw_histograms(*, scores: KeptScores, out: Out = Path("figures")) -> Facts:
    """Draw how the baseline score and the regret are distributed over in-distribution and OOD images.

    Example: `pnml figures histograms --scores results/scores/paper/resnet-20__cifar10__uniform__baseline.safetensors`
    """
    return {"figures": _write(histograms.draw(_comparisons(scores)), out, "histograms")}


def _comparisons(scores: list[Path]) -> list[Comparison]:
    _require_matplotlib()
    return [kept_comparison(path) for path in scores]


def _require_matplotlib() -> None:
    require("matplotlib", extra="plot", what="pnml figures")


def _write(figure: Figure, out: Path, name: str) -> list[Path]:
    paths = list(save(figure, out, name))
    for path in paths:
        typer.echo(f"wrote {path}")
    return paths
