"""``pnml score``: prediction, regret, p-value and decision for every sample of a file."""

import io
import os
import shlex
import sys
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
from pnml.io.outputs import check_output
from pnml.io.source import Samples

_QUANTILES = {"min": 0.0, "5%": 0.05, "median": 0.5, "95%": 0.95, "max": 1.0}
_KEYS = ("min", "p5", "median", "p95", "max")


@options.with_inputs
def score(
    *,
    detector: options.DetectorFile,
    out: Annotated[
        Any,
        typer.Option(
            help="The table to write: .parquet or .csv, or - for CSV on standard output; with --engine ray a folder "
            "for .parquet files, also s3://, ...",
            parser=options.parse_output,
            metavar="PATH",
        ),
    ] = options.STANDARD,
    inputs: options.Inputs,
    check_model: options.CheckModelOption = True,
    by_layer: Annotated[
        bool, typer.Option("--by-layer", help="Also write the leverage of every layer, for the bars of `pnml report`.")
    ] = False,
    restart: Annotated[bool, typer.Option("--restart", help="Start over instead of resuming a killed run.")] = False,
    engine: options.EngineOption = "plain",
    cpus: options.CpusOption = None,
) -> Facts:
    """Score every sample: id, prediction, probability, regret in nats, and once calibrated p_value and is_ood.

    If the detector reads earlier layers, strangest_layer names the one that stands out most from training samples:
    early ones see how a sample looks (noise, texture, another camera), late ones and the embedding what it shows.

    Reads inputs larger than memory. A killed run is resumed when the same command is run again: until the table is
    whole, its parts are kept in OUT.parts.

    Example: `pnml score detector.safetensors --embeddings new.parquet --out scores.parquet`

    Example: `cat new.csv | pnml score detector.safetensors --embeddings - > scores.csv`

    Example: `pnml score detector.safetensors --model mine.py:create --images new/ --out scores.csv --by-layer`

    Example: `pnml score detector.safetensors --embeddings s3://bucket/new/ --engine ray --out s3://bucket/scores`
    """
    options.check_engine(engine, cpus)
    to_file = out != options.STANDARD
    if engine == "ray" and not to_file:
        raise typer.BadParameter("--engine ray writes a folder: name one", param_hint="--out")
    if not to_file and sys.stdout is sys.stderr:  # where --json sends everything but its object
        raise typer.BadParameter("--json needs standard output for itself: name a file", param_hint="--out")
    if engine == "plain" and to_file and (not isinstance(out, Path) or out.is_dir()):
        raise typer.BadParameter(f"{out} is no file of this machine: --engine ray writes folders", param_hint="--out")
    if to_file:
        check_output(out, detector, *inputs.paths, is_folder=engine == "ray")
    samples, fitted = inputs.open_with_detector(detector, check_model=check_model)
    if by_layer and not fitted.layer_names:
        raise typer.BadParameter(f"{detector} reads the embedding alone", param_hint="--by-layer")
    parts = f"{out}.parts" if engine == "plain" else out
    kept = f"finished rows are kept in {parts}; run the same command again to continue"
    with if_interrupted(kept if to_file else "nothing is kept"):
        if engine == "ray":
            from pnml.engines import ray

            summary = ray.score_samples(samples, fitted, out, by_layer=by_layer, restart=restart, cpus=cpus)
        elif to_file:
            summary = local.score(samples, fitted, out, by_layer=by_layer, restart=restart)
        else:
            summary = _score_to_stdout(samples, fitted, by_layer=by_layer)
    options.list_skipped(summary.skipped, samples)
    into = f"into {out}" if to_file else "onto standard output"
    lines = [f"scored {summary.rows:,} rows of {samples.path} {into}", *_describe(summary, fitted)]
    if isinstance(out, Path):
        lines.append(f"to look at them: {_report_command(out, detector, inputs.images)}")
    for line in lines:
        typer.echo(line, err=not to_file)
    return {
        "out": out,
        "input": samples.path,
        "rows": summary.rows,
        "regret": {key: summary.quantile(share) for key, share in zip(_KEYS, _QUANTILES.values(), strict=True)},
        "threshold": None if fitted.threshold is None else _limits(fitted.threshold),
        "flagged": None if fitted.threshold is None else summary.flagged,
        "skipped": summary.skipped,
    }


def _report_command(out: Path, detector: Path, images: Any) -> str:
    words = ["pnml", "report", out, "--detector", detector, *(["--images", images] if isinstance(images, Path) else [])]
    return shlex.join(map(str, words))


def _limits(threshold: Threshold) -> float | list[float]:
    """Return the regret above which samples are flagged, or one for each predicted class."""
    return threshold.value if threshold.by is None else [one.value for one in threshold.classes]


def _score_to_stdout(samples: Samples, detector: Detector, *, by_layer: bool) -> Summary:
    """Write the table as CSV on standard output; end in silence when nobody reads on, as after ``| head``."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="strict")  # as files are, whatever the terminal shows
    try:
        summary = local.score_to_stream(samples, detector, sys.stdout, by_layer=by_layer)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes when it exits
        raise typer.Exit(1) from None
    return summary


def _describe(summary: Summary, detector: Detector) -> list[str]:
    quantiles = ", ".join(f"{name} {summary.quantile(share):.4g}" for name, share in _QUANTILES.items())
    lines = [f"regret in nats: {quantiles}"]
    if detector.threshold is None:
        return [*lines, "no threshold is set, so no p_value and is_ood: pnml calibrate sets one"]
    limit = f"{detector.threshold.value:.6g}" if detector.threshold.by is None else "that of their predicted class"
    flagged = f"{summary.flagged:,} ({summary.flagged / summary.rows:.1%}) flagged as out-of-distribution"
    return [*lines, f"{flagged}, with a regret above {limit}"]
