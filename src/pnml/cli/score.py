"""``pnml score``: prediction, regret, p-value and decision for every sample of a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from pnml.backend.files import atomic_path
from pnml.cli._errors import user_errors
from pnml.cli._inputs import (
    BatchSizeOption,
    CpusOption,
    DetectorFile,
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
from pnml.cli._tally import Tally
from pnml.core.detector import Detector
from pnml.io.chunk import Samples
from pnml.io.fingerprint import content_digest
from pnml.io.parts import Columns, Part, Parts
from pnml.io.paths import PathOrUri, path_or_uri
from pnml.io.scores import score_chunk, score_writer

if TYPE_CHECKING:
    from pnml.engines.summary import Summary

CHUNKS_PER_PART = 16
"""How many chunks are scored between two points from which a killed run can go on."""


@user_errors()
def score(
    *,
    detector: DetectorFile,
    out: Annotated[
        Any,
        typer.Option(
            help="The table to write: .parquet or .csv; with --engine ray a folder for .parquet files, also s3://, ...",
            parser=path_or_uri,
            metavar="PATH",
        ),
    ],
    embeddings: EmbeddingsOption = None,
    images: ImagesOption = None,
    model: ModelOption = None,
    weights: WeightsOption = None,
    size: SizeOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    batch_size: BatchSizeOption = 128,
    strict: StrictOption = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start over instead of going on with a killed run.")
    ] = False,
    engine: EngineOption = "plain",
    cpus: CpusOption = None,
) -> None:
    """Score every sample: id, prediction, probability, regret in nats, and once calibrated p_value and is_ood.

    Reads inputs larger than memory. A run that was killed goes on where it stopped when the same command is run
    again: until the table is whole, its parts wait in OUT.parts.

    Example: `pnml score detector.safetensors --embeddings new.parquet --out scores.parquet`

    Example: `pnml score detector.safetensors --model mine:create --images new/ --size 32 --out scores.csv`

    Example: `pnml score detector.safetensors --embeddings s3://bucket/new/ --engine ray --out s3://bucket/scores`
    """
    check_engine(engine, cpus)
    inputs = Inputs(embeddings, images, model, weights, size, mean, std, batch_size, strict)
    if engine == "ray":
        _score_on_ray(*inputs.open_with_detector(detector), out, restart=restart, cpus=cpus)
        return
    if not isinstance(out, Path) or out.is_dir():
        raise typer.BadParameter(f"{out} is no file of this machine: --engine ray writes folders", param_hint="--out")
    write = score_writer(out)
    samples, fitted = inputs.open_with_detector(detector)
    parts = Parts(out)
    start = parts.begin({**samples.fingerprint(), "detector": content_digest(detector)}, restart=restart)
    if start:
        typer.echo(f"going on at row {start:,} of {samples.count:,}", err=True)
    if start < samples.count:
        _score_from(start, samples, fitted, parts)
    tally = Tally(fitted.n_classes)
    joined = parts.folder / out.name
    with atomic_path(joined) as partial:  # in the folder of parts, so that a kill leaves nothing beside OUT
        write(partial, _tables(parts, tally, samples))
    joined.replace(out)
    parts.remove()
    shares = {"least": 0.0, "5%": 0.05, "median": 0.5, "95%": 0.95, "most": 1.0}
    _summarise(tally, {name: tally.quantile(share) for name, share in shares.items()}, fitted, samples, out)


def _score_on_ray(samples: Samples, detector: Detector, out: PathOrUri, *, restart: bool, cpus: int | None) -> None:
    """Score on all cores of this machine, or on a cluster, into a folder."""
    from pnml.engines.ray import scored

    summary = scored(samples, detector, out, restart=restart, cpus=cpus)
    report_skipped(list(summary.skipped), samples)
    values = {"least": summary.least, "mean": summary.mean, "most": summary.most}
    _summarise(summary, values, detector, samples, out)


def _score_from(start: int, samples: Samples, detector: Detector, parts: Parts) -> None:
    """Score the samples from ``start`` on, and keep every few chunks as a part."""
    tables: list[Columns] = []
    skipped: list[str] = []
    for number, chunk in enumerate(read(samples, "score", detector.n_features, start=start), start=1):
        skipped += chunk.skipped
        if len(chunk.ids):
            tables.append(score_chunk(chunk, detector))
        if number % CHUNKS_PER_PART == 0 or chunk.stop == samples.count:
            names = tables[0] if tables else ()
            columns = {name: np.concatenate([table[name] for table in tables]) for name in names}
            parts.write(start, chunk.stop, Part(columns, skipped))
            start, tables, skipped = chunk.stop, [], []


def _tables(parts: Parts, tally: Tally, samples: Samples) -> Iterator[Columns]:
    """Give the parts' tables, counted on the way; parts where every image was skipped have none."""
    for part in parts:
        tally.add(part)
        if part.columns:
            yield part.columns
    report_skipped(tally.skipped, samples)


def _summarise(
    counts: "Tally | Summary", regrets: dict[str, float], detector: Detector, samples: Samples, out: PathOrUri
) -> None:
    typer.echo(f"scored {counts.rows:,} rows of {samples.path} into {out}")
    typer.echo("regret in nats: " + ", ".join(f"{name} {value:.4g}" for name, value in regrets.items()))
    if detector.threshold is None:
        typer.echo("no threshold is set, so no p_value and is_ood: pnml calibrate sets one")
    else:
        typer.echo(
            f"{counts.flagged:,} ({counts.flagged / counts.rows:.1%}) flagged as out-of-distribution, "
            f"with a regret above {detector.threshold.value:.6g}"
        )
