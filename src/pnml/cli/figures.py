"""``pnml figures``: draw the paper's figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pnml.backend.extras import require
from pnml.backend.files import atomic_path
from pnml.bench.figures import gram_vs_pnml, histograms, iris, save, simulation, spectrum, tpr_tnr
from pnml.cli._errors import user_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pnml.bench.figures._runs import Comparison
    from pnml.bench.options import Options

figures_app = typer.Typer(
    name="figures",
    help="Draw the paper's figures as PNG and SVG.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Out = Annotated[Path, typer.Option("--out", help="Folder for the PNG and the SVG; made when it is not there.")]
Model = Annotated[str, typer.Option(help="The network, as `densenet-bc-100`.")]
Ind = Annotated[str, typer.Option(help="The in-distribution set, as `cifar10`.")]
Ood = Annotated[str, typer.Option(help="The OOD sets, joined by commas: names, or paths of pictures.")]
Device = Annotated[str, typer.Option(help="Where to compute, as PyTorch names it.")]
Limit = Annotated[int | None, typer.Option(help="At most this many images of every set, for a quick look.")]
Checkpoint = Annotated[
    Path | None,
    typer.Option(help="Your own weights for the network, instead of the paper's.", exists=True, dir_okay=False),
]


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


@figures_app.command("spectrum")
def draw_spectrum(
    *,
    model: Model = "densenet-bc-100",
    ind: Annotated[str, typer.Option(help="The training sets, joined by commas.")] = "cifar10,cifar100,svhn",
    device: Device = "auto",
    limit: Limit = None,
    checkpoint: Checkpoint = None,
    out: Out = Path("figures"),
) -> None:
    """Draw the eigenvalues of the training embeddings' correlation, one line for each training set.

    Example: `pnml figures spectrum --model densenet-bc-100 --ind cifar10,svhn --out figures`
    """
    with user_errors():
        options = _options(device, limit, checkpoint)
        from pnml.bench.figures._runs import subspaces

        _write(spectrum.draw(subspaces(model, ind.split(","), options), model), out, "spectrum")


@figures_app.command("gram-vs-pnml")
def draw_gram_vs_pnml(
    *,
    model: Model = "densenet-bc-100",
    ind: Ind = "cifar100",
    ood: Annotated[str, typer.Option(help="The OOD set: a name, or a path of pictures.")] = "lsun_crop",
    device: Device = "auto",
    limit: Limit = None,
    checkpoint: Checkpoint = None,
    out: Out = Path("figures"),
) -> None:
    """Draw the regret of Gram+pNML against the Gram score, and count which samples each of them gets wrong.

    The counts are printed, and written to a JSON file beside the picture.

    Example: `pnml figures gram-vs-pnml --ind cifar100 --ood tinyimagenet_crop --out figures`
    """
    with user_errors():
        (comparison,) = _comparisons(model, ind, [ood], "gram", _options(device, limit, checkpoint))
        counts = gram_vs_pnml.count(comparison.alone, comparison.plus_pnml)
        _write(gram_vs_pnml.draw(comparison), out, "gram-vs-pnml")
        target = out / "gram-vs-pnml.json"
        about = {
            "model": comparison.model,
            "ind": comparison.ind,
            "ood": comparison.ood,
            "method": comparison.method,
            "limit": limit,
        }
        with atomic_path(target) as partial:
            partial.write_text(json.dumps(about | counts, indent=2) + "\n", encoding="utf-8")
    typer.echo(f"wrote {target}")
    for sentence in gram_vs_pnml.describe(counts):
        typer.echo(sentence)


@figures_app.command("tpr-tnr")
def draw_tpr_tnr(
    *,
    model: Model = "densenet-bc-100",
    ind: Ind = "cifar10",
    ood: Ood = "lsun_resize",
    method: Annotated[str, typer.Option(help="The method: baseline, odin, gram, oecc or energy.")] = "odin",
    device: Device = "auto",
    limit: Limit = None,
    checkpoint: Checkpoint = None,
    out: Out = Path("figures"),
) -> None:
    """Draw TNR against TPR of a method alone and with pNML, one panel for each OOD set.

    Example: `pnml figures tpr-tnr --ind cifar10 --ood lsun_resize,svhn --method odin --out figures`
    """
    with user_errors():
        comparisons = _comparisons(model, ind, ood.split(","), method, _options(device, limit, checkpoint))
        _write(tpr_tnr.draw(comparisons), out, "tpr-tnr")


@figures_app.command("histograms")
def draw_histograms(
    *,
    model: Model = "densenet-bc-100",
    ind: Ind = "cifar10",
    ood: Ood = "svhn,tinyimagenet_crop",
    device: Device = "auto",
    limit: Limit = None,
    checkpoint: Checkpoint = None,
    out: Out = Path("figures"),
) -> None:
    """Draw how the baseline score and the regret are distributed over in-distribution and OOD images.

    Example: `pnml figures histograms --ind cifar10 --ood svhn,uniform --out figures`
    """
    with user_errors():
        comparisons = _comparisons(model, ind, ood.split(","), "baseline", _options(device, limit, checkpoint))
        _write(histograms.draw(comparisons), out, "histograms")


def _options(device: str, limit: int | None, checkpoint: Path | None) -> Options:
    require("torch", extra="bench", what="pnml figures")
    require("matplotlib", extra="plot", what="pnml figures")
    from pnml.bench.options import Options

    return Options(device=device, limit=limit, checkpoint=checkpoint)


def _comparisons(model: str, ind: str, ood: list[str], method: str, options: Options) -> list[Comparison]:
    from pnml.bench.figures._runs import comparisons

    return comparisons(model, ind, ood, method, options)


def _write(figure: Figure, out: Path, name: str) -> None:
    for path in save(figure, out, name):
        typer.echo(f"wrote {path}")
