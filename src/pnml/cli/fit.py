"""``pnml fit``: a detector from training embeddings, or from training images and their model."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pnml.cli._errors import user_errors
from pnml.cli._inputs import (
    BatchSizeOption,
    CpusOption,
    EmbeddingsOption,
    EngineOption,
    ImagesOption,
    Inputs,
    MeanOption,
    ModelOption,
    SizeOption,
    StdOption,
    StrictOption,
    WeightsOption,
    check_engine,
    read,
    report_skipped,
)
from pnml.cli._spectrum import describe
from pnml.core.correlation import Correlation
from pnml.core.detector import Detector
from pnml.core.scaling import EmbeddingScale
from pnml.io.chunk import Samples
from pnml.io.head import read_head

if TYPE_CHECKING:
    from torch import nn

    from pnml.pytorch.guard import Guard


@user_errors()
def fit(
    *,
    out: Annotated[Path, typer.Option(help="The detector to write, a .safetensors file.", dir_okay=False)],
    embeddings: EmbeddingsOption = None,
    head: Annotated[
        Path | None,
        typer.Option(
            help="With --embeddings: the last layer's weight and bias, .npz or .safetensors.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    images: ImagesOption = None,
    model: ModelOption = None,
    weights: WeightsOption = None,
    head_layer: Annotated[
        str | None, typer.Option(help="With --images: the last layer's name, where it is not found by itself.")
    ] = None,
    size: SizeOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    batch_size: BatchSizeOption = 128,
    strict: StrictOption = False,
    embedding_scale: Annotated[
        EmbeddingScale,
        typer.Option(
            help="How long embeddings are made: auto sees near- and far-OOD; norm 1 as in the paper; as they are."
        ),
    ] = "auto",
    engine: EngineOption = "plain",
    cpus: CpusOption = None,
) -> None:
    """Fit a detector on the training set: its embeddings and the last layer, or its images and the model.

    One pass, in memory that does not grow with the training set. Images are read as RGB, resized to --size,
    scaled to [0, 1] and normalised by --mean and --std; a factory that returns (model, transform) does all that with
    its transform, from a Pillow image to a tensor, instead.

    Example: `pnml fit --embeddings train.npy --head head.npz --out detector.safetensors`

    Example: `pnml fit --model mine:create --images train/ --size 32 --out detector.safetensors`

    Example: `pnml fit --embeddings s3://bucket/train/ --head head.npz --engine ray --out detector.safetensors`
    """
    check_engine(engine, cpus)
    if (head is None) != (embeddings is None):
        raise typer.BadParameter("--embeddings and --head go together")
    if head is not None and head_layer is not None:
        raise typer.BadParameter("--head-layer goes with --images only")
    out.parent.mkdir(parents=True, exist_ok=True)
    inputs = Inputs(embeddings, images, model, weights, size, mean, std, batch_size, strict)
    unit_norm = embedding_scale != "natural"
    add_up = _sum if engine == "plain" else partial(_sum_on_ray, cpus=cpus)
    samples: Samples
    if head is not None:
        detector = Detector(*read_head(head), embedding_scale=embedding_scale)
        samples = inputs.open_embeddings()
        statistic = add_up(samples, detector.n_features, unit_norm=unit_norm)
    else:
        samples = embedded = inputs.open_images(lambda network: _guard(network, head_layer))
        statistic = add_up(samples, None, unit_norm=unit_norm)
        layer = embedded.guard.head
        detector = Detector(layer.weight, layer.bias, embedding_scale=embedding_scale)
    detector.merge(statistic).save(out)
    typer.echo(f"fitted on {statistic.count:,} rows of {samples.path}")
    typer.echo(f"  features  {detector.n_features:,}")
    typer.echo(f"  classes   {detector.n_classes:,}")
    typer.echo(f"  rank      {detector.subspace.rank:,} of {detector.n_features:,}")
    typer.echo(f"  spectrum  {describe(detector.subspace)}")
    typer.echo(f"wrote {out}; next, set its threshold: pnml calibrate {out}")


def _guard(network: "nn.Module", head_layer: str | None) -> "Guard":
    from pnml.pytorch.guard import Guard

    return Guard(network, head=head_layer)


def _sum(samples: Samples, n_features: int | None, *, unit_norm: bool) -> Correlation:
    """Sum the statistic over all samples, and report those that were skipped."""
    statistic = Correlation(unit_norm=unit_norm)
    skipped: list[str] = []
    for chunk in read(samples, "fit", n_features, unit_norm=unit_norm):
        skipped += chunk.skipped
        if len(chunk.ids):
            statistic.update(chunk.embeddings)
    report_skipped(skipped, samples)
    return statistic


def _sum_on_ray(samples: Samples, n_features: int | None, *, unit_norm: bool, cpus: int | None) -> Correlation:
    """Do the same on all cores of this machine, or on a cluster."""
    from pnml.engines.ray import summed

    statistic, skipped = summed(samples, n_features, unit_norm=unit_norm, cpus=cpus)
    report_skipped(skipped, samples)
    return statistic
