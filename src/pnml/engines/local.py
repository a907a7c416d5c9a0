"""Fit, calibrate and score in this process, a chunk at a time; and the work on one range, which Ray's workers share."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import numpy as np

from pnml.backend.files import atomic_path
from pnml.core.calibration_scores import CalibrationScores
from pnml.core.correlation import Correlation
from pnml.core.detector import Detector
from pnml.core.rows import check_scored
from pnml.engines.budget import check_ids, within_budget
from pnml.engines.ranges import local_ranges
from pnml.engines.reading import check_coverage, read_chunks
from pnml.engines.summary import Summary
from pnml.io.fingerprint import fingerprint_detector, join_digests
from pnml.io.outputs import check_output
from pnml.io.preparation import check_preparation
from pnml.io.scores import ScoreTable, score_writer, write_csv
from pnml.io.source import locate_errors
from pnml.io.store import Part, PartStore
from pnml.io.texts import count_characters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pnml.core.calibration import By, Threshold
    from pnml.engines.ranges import Range
    from pnml.io.scores import Columns
    from pnml.io.source import Chunk, Samples
    from pnml.pytorch.guard import Guard

_LOG = logging.getLogger(__name__)


class Sums(NamedTuple):
    """The statistic of a range of rows, and the ids of the images among them that do not decode."""

    correlation: Correlation
    skipped: tuple[str, ...]


class Fit(NamedTuple):
    """A fitted detector, and the ids of the images that do not decode."""

    detector: Detector
    skipped: tuple[str, ...]


def fit(samples: Samples, head: Detector | Guard, *, progress: bool = True) -> Fit:
    """Fit a new detector with the last layer and embedding scale of a detector, or of the guard of images' model."""
    samples = within_budget(samples, head.n_classes if isinstance(head, Detector) else 0)
    return finish_fit(samples, head, sum_rows(samples, 0, samples.count, head, progress=progress))


def calibrate(
    samples: Samples,
    detector: Detector,
    *,
    false_alarm_rate: float,
    leave_one_out: bool,
    by: By | None = None,
    progress: bool = True,
) -> tuple[Threshold, tuple[str, ...]]:
    """Set the threshold of a detector from in-distribution samples, as :meth:`~pnml.Detector.calibrate` does.

    Return it with the ids of the images that do not decode.
    """
    check_preparation(detector.preparation, samples.preparation_record)
    samples = within_budget(samples, detector.n_classes)
    parts: list[CalibrationScores] = []
    skipped: list[str] = []
    for chunk in read_chunks(samples, [(0, samples.count)], "calibrate", progress=progress):
        skipped += chunk.skipped
        if len(chunk.ids):
            with locate_errors(chunk, samples.path, samples.layer_names):
                scores = detector.calibration_scores(
                    chunk.embeddings, features=chunk.features, logits=chunk.logits, leave_one_out=leave_one_out
                )
            parts.append(scores)
    check_coverage(samples, sum(len(part.scores) for part in parts), skipped)
    detector.threshold = CalibrationScores.join(parts).threshold(false_alarm_rate=false_alarm_rate, by=by)
    return detector.threshold, tuple(skipped)


def score(
    samples: Samples,
    detector: Detector,
    out: Path,
    *,
    by_layer: bool = False,
    restart: bool = False,
    progress: bool = True,
) -> Summary:
    """Score all samples into one file; a run of the same arguments that was killed is resumed.

    If the input changed meanwhile, because a row was repaired, rows before it keep their scores, and so do all others
    whose content and places are as they were: every part that is kept is compared with its rows. While a run is at
    work, a second one with the same ``out`` is refused; and so is an ``out`` that would change the input.

    Args:
        samples: the samples to score.
        detector: a fitted detector.
        out: the table to write, ``.parquet`` or ``.csv``; until it is whole, its parts are in the folder OUT.parts.
        by_layer: write the leverage of every layer, too, if the detector reads several.
        restart: delete the parts of an earlier run instead of resuming it.
        progress: show a progress bar on stderr.
    """
    check_preparation(detector.preparation, samples.preparation_record)
    write = score_writer(out)
    folder = out.with_name(f"{out.name}.parts")
    check_output(out, samples.path)
    check_output(folder, samples.path)
    samples = within_budget(samples, detector.n_classes)
    ranges = local_ranges(samples)
    store = PartStore(folder, "npz")
    with store.lock():
        begin(store, samples, detector, ranges, by_layer=by_layer, restart=restart)
        summary = score_rows(samples, ranges, detector, store, by_layer=by_layer, progress=progress)
        check_coverage(samples, summary.rows, summary.skipped)
        with atomic_path(out) as partial:
            write(partial, _stored_columns(store, ranges))
            store.check_complete(ranges)
        store.delete_all()
    return summary


def score_to_stream(samples: Samples, detector: Detector, file: TextIO, *, by_layer: bool) -> Summary:
    """Score all samples as CSV into an open file, a chunk at a time; what was written stays if an error follows."""
    check_preparation(detector.preparation, samples.preparation_record)
    samples = within_budget(samples, detector.n_classes)
    table = ScoreTable(detector, by_layer=by_layer)
    summary = Summary()

    def tables() -> Iterator[Columns]:
        nonlocal summary
        for chunk in read_chunks(samples, [(0, samples.count)], "score", progress=True):
            columns = _score_chunk(chunk, samples, detector, table)
            summary += Summary.of(Part(columns, list(chunk.skipped)))
            yield columns

    write_csv(file, tables())
    check_coverage(samples, summary.rows, summary.skipped)
    return summary


def begin(
    store: PartStore, samples: Samples, detector: Detector, ranges: Sequence[Range], *, by_layer: bool, restart: bool
) -> None:
    """Begin or resume the scoring of all samples in a store, and say so if the input changed meanwhile."""
    if store.begin(manifest(samples, detector, by_layer=by_layer), ranges, restart=restart):
        _LOG.info("%s is not as the earlier run read it: rows that are as they were keep their scores", samples.path)


def sum_rows(samples: Samples, start: int, stop: int, head: Detector | Guard, *, progress: bool = False) -> Sums:
    """Sum the statistic of the rows from ``start`` to before ``stop``, for the last layer and scale of ``head``."""
    detector: Detector | None = None
    skipped: list[str] = []
    for chunk in read_chunks(samples, [(start, stop)], "fit", progress=progress):
        skipped += chunk.skipped
        if len(chunk.ids):
            if detector is None:  # a guard knows its last layer after the first batch of images
                detector = unfitted(head)
            with locate_errors(chunk, samples.path, samples.layer_names):
                detector.partial_fit(chunk.embeddings, features=chunk.features)
    if detector is not None:
        return Sums(detector.correlation, tuple(skipped))
    n_classes = head.correlation.n_classes if isinstance(head, Detector) else 0
    return Sums(Correlation(unit_norm=head.embedding_scale != "natural", n_classes=n_classes), tuple(skipped))


def score_rows(
    samples: Samples,
    ranges: Sequence[Range],
    detector: Detector,
    store: PartStore,
    *,
    by_layer: bool = False,
    progress: bool = False,
) -> Summary:
    """Score ranges of rows and store each as one part; parts of the same rows, of an earlier run, are kept."""
    summaries: dict[Range, Summary] = {}
    for rows in ranges:
        part = store.read(*rows)
        if part is not None and part.digest == samples.digest(*rows):
            summaries[rows] = Summary.of(part)
    if summaries:
        done = sum(stop - start for start, stop in summaries)
        _LOG.info("resuming: %s of %s rows are scored already", f"{done:,}", f"{samples.count:,}")
    missing = [rows for rows in ranges if rows not in summaries]
    starts = {stop: start for start, stop in missing}
    table = ScoreTable(detector, by_layer=by_layer)
    tables: list[Columns] = []
    skipped: list[str] = []
    digests: list[bytes] = []
    characters = 0
    for chunk in read_chunks(samples, missing, "score", progress=progress):
        skipped += chunk.skipped
        characters += count_characters(chunk.ids)
        check_ids(characters, samples, chunk.stop - len(chunk.ids), chunk.stop)
        digests.append(chunk.digest())
        tables.append(_score_chunk(chunk, samples, detector, table))
        if chunk.stop in starts:
            rows = (starts[chunk.stop], chunk.stop)
            joined = {name: np.concatenate([columns[name] for columns in tables]) for name in tables[0]}
            part = Part(joined, skipped, join_digests(digests))
            store.write(*rows, part)
            summaries[rows] = Summary.of(part)
            tables = []
            skipped = []
            digests = []
            characters = 0
    return sum((summaries[rows] for rows in ranges), Summary())


def _score_chunk(chunk: Chunk, samples: Samples, detector: Detector, table: ScoreTable) -> Columns:
    if not len(chunk.ids):
        return table.empty(chunk.ids)
    with locate_errors(chunk, samples.path, samples.layer_names):
        result = detector(chunk.embeddings, features=chunk.features, logits=chunk.logits)
        check_scored(result.regret, chunk.embeddings, chunk.features)
    return table.columns(chunk.ids, result)


def finish_fit(samples: Samples, head: Detector | Guard, sums: Sums) -> Fit:
    """Return the detector of the last layer of ``head`` and the statistic of all samples."""
    check_coverage(samples, sums.correlation.count + sums.correlation.left_out, sums.skipped)
    detector = unfitted(head)
    detector.layer_names = samples.layer_names
    detector.preparation = samples.preparation_record
    if not isinstance(head, Detector):
        detector.model_fingerprint = head.model_fingerprint()
    return Fit(detector.merge(sums.correlation), sums.skipped)


def unfitted(head: Detector | Guard) -> Detector:
    """Return a new detector with the last layer and the embedding scale of a detector, or of a guard's model."""
    if isinstance(head, Detector):
        return type(head)(head.weight, head.bias, embedding_scale=head.embedding_scale)
    return head.empty_detector()


def manifest(samples: Samples, detector: Detector, *, by_layer: bool = False) -> dict[str, Any]:
    """Return what identifies the work whose parts may be resumed."""
    columns = {"columns": "by layer"} if by_layer else {}
    return {**samples.fingerprint(), "detector": fingerprint_detector(detector), **columns}


def _stored_columns(store: PartStore, ranges: Sequence[Range]) -> Iterator[Columns]:
    for start, stop in ranges:
        part = store.read(start, stop)
        if part is None:
            raise ValueError(f"{store.path} changed while it was read: run the command again")
        yield part.columns
