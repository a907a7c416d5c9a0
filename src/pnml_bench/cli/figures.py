"""``pnml figures``: draw the paper's figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pnml.backend.extras import require
from pnml.backend.files import write_text
from pnml.cli._app import App, Facts, common_options
from pnml.cli._help import Command
from pnml_bench.cli._network_options import (
    CheckpointOption,
    DeviceOption,
    IndOption,
    LimitOption,
    ModelOption,
    OodOption,
)
from pnml_bench.figures import gram_vs_pnml, histograms, iris, save, simulation, spectrum, tpr_tnr
from pnml_bench.figures._kept import kept_comparison, kept_spectra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pnml_bench.figures._comparison import Comparison
    from pnml_bench.options import Options

figures_app = typer.Typer(
    name="figures",
    cls=App,
    help="Draw the paper's figures as PNG and SVG.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Out = Annotated[Path, typer.Option("--out", help="The folder for the PNG and the SVG.", file_okay=False)]
KeptScores = Annotated[
    list[Path] | None,
    typer.Option(
        "--scores",
        help="Draw from a file that `pnml bench --keep-scores` wrote, instead of running a network; may be repeated.",
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
def draw_spectrum(
    *,
    model: ModelOption = "densenet-bc-100",
    ind: Annotated[str, typer.Option(help="The training sets with commas between.")] = "cifar10,cifar100,svhn",
    device: DeviceOption = "auto",
    limit: LimitOption = None,
    checkpoint: CheckpointOption = None,
    scores: KeptScores = None,
    out: Out = Path("figures"),
) -> Facts:
    """Draw the eigenvalues of the training embeddings' correlation, one line for each training set.

    Example: `pnml figures spectrum --model densenet-bc-100 --ind cifar10,svhn --out figures`
    """
    if scores:
        _require_matplotlib()
        found = kept_spectra(scores)
    else:
        options = _options(device, limit, checkpoint)
        from pnml_bench.figures._runs import spectra

        found = {model: spectra(model, ind.split(","), options)}
    figure = spectrum.draw(found)
    return {"figures": _write(figure, out, "spectrum")}


@figures_app.command("gram-vs-pnml", cls=Command)
@common_options
def draw_gram_vs_pnml(
    *,
    model: ModelOption = "densenet-bc-100",
    ind: IndOption = "cifar100",
    ood: Annotated[
        str, typer.Option(help="The OOD set: a name, or the path of a folder or .parquet file.")
    ] = "lsun_crop",
    device: DeviceOption = "auto",
    limit: LimitOption = None,
    checkpoint: CheckpointOption = None,
    scores: KeptScores = None,
    out: Out = Path("figures"),
) -> Facts:
    """Draw the regret of Gram+pNML against the Gram score, and count which samples each of them gets wrong.

    The counts are printed, and written to a JSON file beside the picture.

    Example: `pnml figures gram-vs-pnml --ind cifar100 --ood tinyimagenet_crop --out figures`
    """
    (comparison, *more) = _comparisons((model, ind, [ood], "gram"), scores, (device, limit, checkpoint))
    if more:
        raise typer.BadParameter(f"the figure is of one pair, got {1 + len(more)} files", param_hint="--scores")
    counts = gram_vs_pnml.count(comparison.alone, comparison.plus_pnml)
    written = _write(gram_vs_pnml.draw(comparison), out, "gram-vs-pnml")
    target = out / "gram-vs-pnml.json"
    about = {
        "model": comparison.model,
        "ind": comparison.ind,
        "ood": comparison.ood,
        "method": comparison.method,
        "limit": limit,
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
def draw_tpr_tnr(
    *,
    model: ModelOption = "densenet-bc-100",
    ind: IndOption = "cifar10",
    ood: OodOption = "lsun_resize",
    method: Annotated[str, typer.Option(help="The method: baseline, odin, gram, oecc or energy.")] = "odin",
    device: DeviceOption = "auto",
    limit: LimitOption = None,
    checkpoint: CheckpointOption = None,
    scores: KeptScores = None,
    out: Out = Path("figures"),
) -> Facts:
    """Draw TNR against TPR of a method alone and with pNML, one panel for each OOD set.

    Example: `pnml figures tpr-tnr --ind cifar10 --ood lsun_resize,svhn --method odin --out figures`

    Example: `pnml figures tpr-tnr --scores results/scores/paper-oracle/resnet-34__cifar100__isun__odin.safetensors`
    """
    comparisons = _comparisons((model, ind, ood.split(","), method), scores, (device, limit, checkpoint))
    return {"figures": _write(tpr_tnr.draw(comparisons), out, "tpr-tnr")}


@figures_app.command("histograms", cls=Command)
@common_options
def draw_histograms(
    *,
    model: ModelOption = "densenet-bc-100",
    ind: IndOption = "cifar10",
    ood: OodOption = "svhn,tinyimagenet_crop",
    device: DeviceOption = "auto",
    limit: LimitOption = None,
    checkpoint: CheckpointOption = None,
    scores: KeptScores = None,
    out: Out = Path("figures"),
) -> Facts:
    """Draw how the baseline score and the regret are distributed over in-distribution and OOD images.

    Example: `pnml figures histograms --ind cifar10 --ood svhn,uniform --out figures`
    """
    comparisons = _comparisons((model, ind, ood.split(","), "baseline"), scores, (device, limit, checkpoint))
    return {"figures": _write(histograms.draw(comparisons), out, "histograms")}


def _options(device: str, limit: int | None, checkpoint: Path | None) -> Options:
    require("torch", extra="bench", what="pnml figures")
    _require_matplotlib()
    from pnml_bench.options import Options

    return Options(device=device, limit=limit, checkpoint=checkpoint)


def _comparisons(
    what: tuple[str, str, list[str], str], scores: list[Path] | None, how: tuple[str, int | None, Path | None]
) -> list[Comparison]:
    """Return what is drawn, read from files of scores or run.

    Args:
        what: the network, the in-distribution set, the OOD sets and the method to run.
        scores: the files, in place of that.
        how: the device, the limit and the checkpoint.
    """
    if scores:
        _require_matplotlib()
        return [kept_comparison(path) for path in scores]
    options = _options(*how)
    from pnml_bench.figures._runs import comparisons

    return comparisons(*what, options)


def _require_matplotlib() -> None:
    require("matplotlib", extra="plot", what="pnml figures")


def _write(figure: Figure, out: Path, name: str) -> list[Path]:
    paths = list(save(figure, out, name))
    for path in paths:
        typer.echo(f"wrote {path}")
    return paths
