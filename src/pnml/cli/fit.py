"""``pnml fit``: a detector from training embeddings, or from training images and their model."""

import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pnml.backend.read_errors import naming_file
from pnml.cli import _inputs as options
from pnml.cli._app import Facts
from pnml.cli._words import describe_spectrum, spectrum_facts
from pnml.core.detector import Detector
from pnml.core.scaling import EmbeddingScale
from pnml.engines import local
from pnml.io.head import read_head
from pnml.io.outputs import check_output

if TYPE_CHECKING:
    from pnml.io.embedded_images import EmbeddedImages
    from pnml.io.embeddings import EmbeddingFile
    from pnml.pytorch.guard import Guard

_ROWS_A_CLASS = 10  # with so many training samples for each class, every class should be predicted for some


class EmptyClassesWarning(UserWarning):
    """Some class is predicted for no training sample."""


@options.with_inputs
def fit(
    *,
    out: Annotated[Path, typer.Option(help="The detector to write, a .safetensors file.", dir_okay=False)],
    inputs: options.Inputs,
    head: Annotated[Path | None, typer.Option(help=options.HEAD_HELP, exists=True, dir_okay=False)] = None,
    head_layer: Annotated[str | None, typer.Option(help=options.HEAD_LAYER_HELP)] = None,
    layers: Annotated[
        str,
        typer.Option(
            help="The earlier layers that are watched: auto, which is four of the model or all that the "
            "embeddings' file holds; last, which is none; or their names with commas between.",
            metavar="auto|last|NAME,NAME",
        ),
    ] = "auto",
    embedding_scale: Annotated[
        EmbeddingScale,
        typer.Option(
            help="The length of embeddings: auto detects near- and far-OOD; paper: norm 1; natural: unchanged."
        ),
    ] = "auto",
    engine: options.EngineOption = "plain",
    cpus: options.CpusOption = None,
) -> Facts:
    """Fit a detector on the training set: its embeddings and the last layer, or its images and the model.

    One pass, in memory that does not grow with the training set. Images are read as RGB, resized to --size,
    scaled to [0, 1] and normalised by --mean and --std; a factory that returns (model, transform) replaces all that
    by its transform, from a Pillow image to a tensor.

    With features of earlier layers of the network the detector sees samples that the last layer takes for known ones.
    Of a model they are recorded on the way; beside embeddings they are arrays of an .npz or list columns of a .parquet,
    named `features.` and the layer's name.

    Example: `pnml fit --embeddings train.npy --head head.npz --out detector.safetensors`

    Example: `pnml fit --model mine.py:create --images train/ --size 32 --out detector.safetensors`

    Example: `pnml fit --model mine.py:create --images train/ --layers layer2,layer3 --out detector.safetensors`

    Example: `pnml fit --embeddings s3://bucket/train/ --head head.npz --engine ray --out detector.safetensors`
    """
    options.check_engine(engine, cpus)
    if (head is None) != (inputs.embeddings is None):
        missing = "--head head.npz, the last layer's weight and bias" if head is None else "--embeddings train.npy"
        raise typer.BadParameter(f"--embeddings and --head go together: give {missing}, too")
    if head is not None and head_layer is not None:
        raise typer.BadParameter("--head-layer goes with --images only")
    names = () if layers in {"auto", "last"} else tuple(name.strip() for name in layers.split(","))
    if "" in names or len(set(names)) < len(names):
        raise typer.BadParameter(
            f"{layers!r} is not auto, last, or different names with commas between", param_hint="--layers"
        )
    if names and embedding_scale != "auto":
        raise typer.BadParameter(f"layers need --embedding-scale auto, got {embedding_scale}", param_hint="--layers")
    check_output(out, head, *inputs.paths)
    out.parent.mkdir(parents=True, exist_ok=True)
    samples: EmbeddingFile | EmbeddedImages
    last_layer: Detector | Guard
    if head is not None:
        with naming_file(head):
            last_layer = Detector(*read_head(head), embedding_scale=embedding_scale)
        takes_all = layers == "auto" and embedding_scale == "auto"
        samples = inputs.open_embeddings(last_layer.n_features, None if takes_all else names)
    else:
        samples = inputs.open_images(head_layer, names or layers, embedding_scale)
        last_layer = samples.guard
    if engine == "ray":
        from pnml.engines import ray

        detector, skipped = ray.fit_samples(samples, last_layer, cpus=cpus)
    else:
        detector, skipped = local.fit(samples, last_layer)
    options.list_skipped(skipped, samples)
    detector.save(out)
    _warn_of_empty_classes(detector)
    typer.echo(f"fitted on {detector.count:,} rows of {samples.path}")
    typer.echo(f"  features  {detector.n_features:,}")
    typer.echo(f"  classes   {detector.n_classes:,}")
    widths = zip(detector.layer_names, detector.feature_widths, strict=True)
    named = ", ".join(f"{name} ({width:,})" for name, width in widths)
    typer.echo(f"  layers    {named or 'none: the embedding alone is watched'}")
    typer.echo(f"  rank      {detector.rank:,} of {len(detector.spectrum):,}")
    typer.echo(f"  spectrum  {describe_spectrum(detector.spectrum)}")
    typer.echo(f"wrote {out}; next, set its threshold: {_calibrate_command(out, inputs.model, inputs.weights)}")
    return {
        "detector": out,
        "input": samples.path,
        "rows": detector.count,
        "features": detector.n_features,
        "classes": detector.n_classes,
        "layers": dict(zip(detector.layer_names, detector.feature_widths, strict=True)),
        **spectrum_facts(detector.spectrum),
        "skipped": skipped,
    }


def _warn_of_empty_classes(detector: Detector) -> None:
    """Warn if the model predicts some class for none of many training samples: forgotten weights, or another folder."""
    counts = detector.correlation.class_counts  # of predicted classes; none for the leverage of the paper
    empty = [number for number, count in enumerate(counts) if count == 0]
    if empty and detector.count >= _ROWS_A_CLASS * len(counts):
        named = ", ".join([*map(str, empty[:5]), *["..."] * bool(empty[5:])])
        warnings.warn(
            f"no training sample is predicted to be of class {named} ({len(empty):,} of {len(counts):,} classes): are "
            "these all training samples, and the weights after training?",
            EmptyClassesWarning,
            stacklevel=2,
        )


def _calibrate_command(out: Path, model: str | None, weights: Path | None) -> str:
    """Return the command that sets the threshold, but for the samples that were held out."""
    words = ["pnml", "calibrate", out, "--embeddings" if model is None else "--images", "HELD_OUT"]
    words += [] if model is None else ["--model", model]
    words += [] if weights is None else ["--weights", weights]
    return shlex.join(map(str, words))
