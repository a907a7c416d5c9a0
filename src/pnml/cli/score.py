"""``pnml score``: prediction, regret, p-value and decision for every sample of a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from pnml._arrays import to_numpy
from pnml._files import atomic_path
from pnml.cli._errors import user_errors
from pnml.cli._inputs import (
    BatchSizeOption,
    DetectorFile,
    EmbeddingsOption,
    ImagesOption,
    Inputs,
    MeanOption,
    ModelOption,
    SizeOption,
    StdOption,
    StrictOption,
    WeightsOption,
    read,
    report_skipped,
)
from pnml.cli._tally import Tally
from pnml.detector import Detector
from pnml.io.chunk import Chunk, Samples
from pnml.io.parts import Columns, Part, Parts
from pnml.io.scores import score_writer
from pnml.io.stamp import content_digest
from pnml.learner import log_softmax

CHUNKS_PER_PART = 16
"""How many chunks are scored between two points from which a killed run can go on."""

_COLUMNS = ("prediction", "probability", "regret", "p_value", "is_ood")


@user_errors()
def score(
    *,
    detector: DetectorFile,
    out: Annotated[Path, typer.Option(help="The table to write: .parquet or .csv.", dir_okay=False)],
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
) -> None:
    """Score every sample: id, prediction, probability, regret in nats, and once calibrated p_value and is_ood.

    Reads inputs larger than memory. A run that was killed goes on where it stopped when the same command is run
    again: until the table is whole, its parts wait in OUT.parts.

    Example: `pnml score detector.safetensors --embeddings new.parquet --out scores.parquet`

    Example: `pnml score detector.safetensors --model mine:create --images new/ --size 32 --out scores.csv`
    """
    write = score_writer(out)
    inputs = Inputs(embeddings, images, model, weights, size, mean, std, batch_size, strict)
    samples, fitted = inputs.open_with_detector(detector)
    parts = Parts(out)
    start = parts.begin({**samples.stamp(), "detector": content_digest(detector)}, restart=restart)
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
    _summarise(tally, fitted, samples, out)


def _score_from(start: int, samples: Samples, detector: Detector, parts: Parts) -> None:
    """Score the samples from ``start`` on, and keep every few chunks as a part."""
    tables: list[Columns] = []
    skipped: list[str] = []
    for number, chunk in enumerate(read(samples, "score", detector.n_features, start=start), start=1):
        skipped += chunk.skipped
        if len(chunk.ids):
            tables.append(_assess(chunk, detector))
        if number % CHUNKS_PER_PART == 0 or chunk.stop == samples.count:
            names = tables[0] if tables else ()
            columns = {name: np.concatenate([table[name] for table in tables]) for name in names}
            parts.write(start, chunk.stop, Part(columns, skipped))
            start, tables, skipped = chunk.stop, [], []


def _assess(chunk: Chunk, detector: Detector) -> Columns:
    """Score a chunk; prediction and probability are the model's own where it ran."""
    table = detector(chunk.embeddings).to_table()
    if chunk.logits is not None:
        log_p = log_softmax(to_numpy(chunk.logits))
        table.update(prediction=log_p.argmax(axis=-1), probability=np.exp(log_p.max(axis=-1)))
    return {"id": chunk.ids, **{name: table[name] for name in _COLUMNS if name in table}}


def _tables(parts: Parts, tally: Tally, samples: Samples) -> Iterator[Columns]:
    """Give the parts' tables, counted on the way; parts where every image was skipped have none."""
    for part in parts:
        tally.add(part)
        if part.columns:
            yield part.columns
    report_skipped(tally.skipped, samples)


def _summarise(tally: Tally, detector: Detector, samples: Samples, out: Path) -> None:
    typer.echo(f"scored {tally.rows:,} rows of {samples.path} into {out}")
    shares = {"least": 0.0, "5%": 0.05, "median": 0.5, "95%": 0.95, "most": 1.0}
    values = ", ".join(f"{name} {tally.quantile(share):.4g}" for name, share in shares.items())
    typer.echo(f"regret in nats: {values}")
    if detector.threshold is None:
        typer.echo("no threshold is set, so no p_value and is_ood: pnml calibrate sets one")
    else:
        typer.echo(
            f"{tally.flagged:,} ({tally.flagged / tally.rows:.1%}) flagged as out-of-distribution, "
            f"with a regret above {detector.threshold.value:.6g}"
        )
