"""``pnml score``: prediction, regret, p-value and decision for every sample of a file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pnml.cli import _inputs as options
from pnml.cli._app import Facts
from pnml.cli._errors import if_interrupted
from pnml.core.calibration import Threshold
from pnml.core.detector import Detector
from pnml.engines import local
from pnml.engines.summary import Summary
from pnml.io.paths import path_or_uri

_QUANTILES = {"min": 0.0, "5%": 0.05, "median": 0.5, "95%": 0.95, "max": 1.0}
_KEYS = ("min", "p5", "median", "p95", "max")


def score(
    *,
    detector: options.DetectorFile,
    out: Annotated[
        Any,
        typer.Option(
            help="The table to write: .parquet or .csv; with --engine ray a folder for .parquet files, also s3://, ...",
            parser=path_or_uri,
            metavar="PATH",
        ),
    ],
    embeddings: options.EmbeddingsOption = None,
    images: options.ImagesOption = None,
    model: options.ModelOption = None,
    weights: options.WeightsOption = None,
    size: options.SizeOption = None,
    mean: options.MeanOption = None,
    std: options.StdOption = None,
    batch_size: options.BatchSizeOption = 128,
    strict: options.StrictOption = False,
    check_model: options.CheckModelOption = True,
    by_layer: Annotated[
        bool,
        typer.Option("--by-layer", help="Also write the leverage of every layer, for the bars of `pnml report`."),
    ] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Start over instead of resuming a killed run.")] = False,
    engine: options.EngineOption = "plain",
    cpus: options.CpusOption = None,
) -> Facts:
    """Score every sample: id, prediction, probability, regret in nats, and once calibrated p_value and is_ood.

    If the detector reads earlier layers, strangest_layer names the one that contributes most to the regret: early ones
    see noise, texture or another camera, late ones and the embedding unknown content.

    Reads inputs larger than memory. A killed run is resumed when the same command is run again: until the table is
    whole, its parts are kept in OUT.parts.

    Example: `pnml score detector.safetensors --embeddings new.parquet --out scores.parquet`

    Example: `pnml score detector.safetensors --model mine:create --images new/ --size 32 --out scores.csv --by-layer`

    Example: `pnml score detector.safetensors --embeddings s3://bucket/new/ --engine ray --out s3://bucket/scores`
    """
    options.check_engine(engine, cpus)
    inputs = options.Inputs(embeddings, images, model, weights, size, mean, std, batch_size, strict)
    if engine == "plain" and (not isinstance(out, Path) or out.is_dir()):
        raise typer.BadParameter(f"{out} is no file of this machine: --engine ray writes folders", param_hint="--out")
    samples, fitted = inputs.open_with_detector(detector, check_model=check_model)
    if by_layer and not fitted.layer_names:
        raise typer.BadParameter(f"{detector} reads the embedding alone", param_hint="--by-layer")
    parts = f"{out}.parts" if engine == "plain" else out
    with if_interrupted(f"finished rows are kept in {parts}; run the same command again to continue"):
        if engine == "ray":
            from pnml.engines import ray

            summary = ray.score_samples(samples, fitted, out, by_layer=by_layer, restart=restart, cpus=cpus)
        else:
            summary = local.score(samples, fitted, out, by_layer=by_layer, restart=restart)
    options.list_skipped(summary.skipped, samples)
    typer.echo(f"scored {summary.rows:,} rows of {samples.path} into {out}")
    _print_summary(summary, fitted)
    return {
        "out": out,
        "input": samples.path,
        "rows": summary.rows,
        "regret": {key: summary.quantile(share) for key, share in zip(_KEYS, _QUANTILES.values(), strict=True)},
        "threshold": None if fitted.threshold is None else _limits(fitted.threshold),
        "flagged": None if fitted.threshold is None else summary.flagged,
        "skipped": summary.skipped,
    }


def _limits(threshold: Threshold) -> float | list[float]:
    """Return the regret above which samples are flagged, or one for each predicted class."""
    return threshold.value if threshold.by is None else [one.value for one in threshold.classes]


def _print_summary(summary: Summary, detector: Detector) -> None:
    quantiles = ", ".join(f"{name} {summary.quantile(share):.4g}" for name, share in _QUANTILES.items())
    typer.echo(f"regret in nats: {quantiles}")
    if detector.threshold is None:
        typer.echo("no threshold is set, so no p_value and is_ood: pnml calibrate sets one")
    else:
        limit = f"{detector.threshold.value:.6g}" if detector.threshold.by is None else "that of their predicted class"
        typer.echo(
            f"{summary.flagged:,} ({summary.flagged / summary.rows:.1%}) flagged as out-of-distribution, "
            f"with a regret above {limit}"
        )
