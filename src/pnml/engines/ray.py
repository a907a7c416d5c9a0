"""Fit and score on a cluster, with Ray Data: the numbers of one machine, on as many as there are.

The dataset that Ray Data maps over holds no embeddings, but which rows of the input to read: a worker reads its range
with the functions of the local engine, so that every row keeps its id, and a range that is done again, because its
worker was killed, gives the same sum or replaces the same file. Ray Data's own parquet writer is not used: it names
files after the run and writes them in place, so that a killed writer leaves half a file, and a job that is started a
second time doubles rows.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pnml.backend.progress import track
from pnml.core.detector import Detector
from pnml.engines.budget import within_budget
from pnml.engines.cluster import cluster
from pnml.engines.jobs import ScoreJob, SumJob, add_tables, map_ranges, reduce_in_tree, row_to_sums
from pnml.engines.local import begin, finish_fit, unfitted
from pnml.engines.ranges import worker_ranges
from pnml.engines.reading import check_coverage
from pnml.engines.summary import Summary
from pnml.io.embedded_images import EmbeddedImages
from pnml.io.embeddings import EmbeddingFile, open_embeddings
from pnml.io.images import open_images
from pnml.io.outputs import check_output
from pnml.io.paths import path_or_uri
from pnml.io.preparation import Preparation, check_preparation, restore_preparation
from pnml.io.store import PartStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml.engines.local import Fit, Sums
    from pnml.io.paths import PathOrUri
    from pnml.io.preparation import Record
    from pnml.io.source import Samples
    from pnml.pytorch.guard import Guard


class SkippedImagesWarning(UserWarning):
    """Some images do not decode and were skipped."""


def fit(
    source: PathOrUri | Samples,
    head: Detector | Guard,
    *,
    preparation: Preparation | None = None,
    batch_size: int = 128,
    cpus: int | None = None,
    progress: bool = True,
) -> Detector:
    """Fit on embeddings in parquet with a detector, or on images with a guard whose model runs on the workers.

    Args:
        source: a path or a URI; see :func:`~pnml.io.embeddings.open_embeddings` and
            :func:`~pnml.io.images.open_images`.
        head: a :class:`~pnml.Detector`, whose head, scale and ``layer_names`` are used, or a :class:`~pnml.Guard`,
            which is fitted too. Without ``layer_names`` all features of earlier layers in the files are used. A guard's
            model is sent to the workers, which must be able to import its classes.
        preparation: the processing of images before the model; scaling to [0, 1] alone when left out.
        batch_size: the number of images that go through the model at once.
        cpus: the number of cores to use when a new Ray is started on this machine.
        progress: show a progress bar on stderr.

    Returns:
        A new fitted detector.

    >>> detector = fit("s3://bucket/train", Detector(weight, bias))  # doctest: +SKIP
    """
    every = None if head.embedding_scale == "auto" else ()
    layers = head.layer_names or every if isinstance(head, Detector) else None
    samples = _open(source, head, layers, preparation, batch_size)
    detector, skipped = fit_samples(samples, head, cpus=cpus, progress=progress)
    _warn_of_skipped(skipped, samples)
    if not isinstance(head, Detector):
        head.detector = detector
    return detector


def score(
    source: PathOrUri | Samples,
    fitted: Detector | Guard,
    out: PathOrUri,
    *,
    preparation: Preparation | None = None,
    batch_size: int = 128,
    by_layer: bool = False,
    restart: bool = False,
    cpus: int | None = None,
    progress: bool = True,
) -> Summary:
    """Score embeddings in parquet with a fitted detector, or images with a fitted guard, into a folder of parquet.

    The columns are those of ``pnml score``. A killed run is resumed by the same call: only missing files are written.

    Args:
        source: as for :func:`fit`.
        fitted: a fitted :class:`~pnml.Detector` or :class:`~pnml.Guard`.
        out: the folder, a path or a URI; every worker must reach it.
        preparation: that of :func:`fit` when left out; another one is refused.
        batch_size: as for :func:`fit`.
        by_layer: write the leverage of every layer, too, if the detector reads several.
        restart: delete the scores of an earlier run in the folder instead of resuming it.
        cpus: as for :func:`fit`.
        progress: as for :func:`fit`.

    >>> score("s3://bucket/new", detector, "s3://bucket/scores").rows  # doctest: +SKIP
    1000000000
    """
    detector = fitted if isinstance(fitted, Detector) else fitted.fitted()
    preparation = preparation or restore_preparation(detector.preparation)
    samples = _open(source, fitted, detector.layer_names, preparation, batch_size, fitted=detector.preparation)
    folder = path_or_uri(str(out))
    summary = score_samples(samples, detector, folder, by_layer=by_layer, restart=restart, cpus=cpus, progress=progress)
    _warn_of_skipped(summary.skipped, samples)
    return summary


def fit_samples(samples: Samples, head: Detector | Guard, *, cpus: int | None = None, progress: bool = True) -> Fit:
    """Fit a new detector on all samples, as :func:`pnml.engines.local.fit` does; see :func:`fit`."""
    return finish_fit(samples, head, sum_samples(samples, head, cpus=cpus, progress=progress))


def sum_samples(samples: Samples, head: Detector | Guard, *, cpus: int | None = None, progress: bool = True) -> Sums:
    """Sum the statistic of all samples: one partial sum per range, added in a tree on the workers."""
    samples = within_budget(samples, head.n_classes if isinstance(head, Detector) else 0)
    job = SumJob(_portable(samples), unfitted(head))
    ranges = worker_ranges(samples)
    with cluster(cpus) as ray:
        add = ray.remote(num_cpus=0, max_retries=-1)(add_tables)  # waits for no core, and is retried like a range
        parts = track(map_ranges(ray, job, ranges), "fit", total=len(ranges), shown=progress)
        (row,) = ray.get(reduce_in_tree(parts, add.remote)).to_pylist()
    return row_to_sums(row)


def score_samples(
    samples: Samples,
    detector: Detector,
    out: PathOrUri,
    *,
    by_layer: bool = False,
    restart: bool = False,
    cpus: int | None = None,
    progress: bool = True,
) -> Summary:
    """Score all samples into a folder of parquet files, one per range; see :func:`score`."""
    check_preparation(detector.preparation, samples.preparation_record)
    samples = within_budget(samples, detector.n_classes)
    store = PartStore(out, "parquet")
    ranges = worker_ranges(samples)
    job = ScoreJob(_portable(samples), detector, store, by_layer)
    summary = Summary()
    check_output(out, samples.path, is_folder=True)
    with cluster(cpus) as ray, store.lock():
        begin(store, samples, detector, ranges, by_layer=by_layer, restart=restart)
        for table in track(map_ranges(ray, job, ranges), "score", total=len(ranges), shown=progress):
            for row in ray.get(table).to_pylist():
                summary += Summary.from_json(row["summary"])
        check_coverage(samples, summary.rows, summary.skipped)
        store.check_complete(ranges)
        store.delete_leftovers()
    return summary


def _open(
    source: PathOrUri | Samples,
    head: Detector | Guard,
    layers: Sequence[str] | None,
    preparation: Preparation | None,
    batch_size: int,
    *,
    fitted: Record | None = None,
) -> Samples:
    if not isinstance(source, (str, Path)):
        return source
    path = path_or_uri(str(source))
    if isinstance(head, Detector):
        return open_embeddings(path, head.n_features, layers, fitted=fitted)
    return EmbeddedImages(
        open_images(path), batch_size, preparation or Preparation(), guard=head, strict=False, model={}
    )


def _portable(samples: Samples) -> Samples:
    """Return samples that every worker can read; their model is on the CPU, its head and layers are known."""
    if isinstance(samples, EmbeddingFile) and not samples.reader.starts:
        raise ValueError(f"{samples.path} is no parquet: the engine ray reads parquet files, or folders of them")
    if not isinstance(samples, EmbeddedImages):
        return samples
    if not samples.guard.is_prepared:
        for chunk in samples.chunks():
            if len(chunk.ids):
                break
    return replace(samples, guard=deepcopy(samples.guard).cpu())


def _warn_of_skipped(skipped: Sequence[str], samples: Samples) -> None:
    if skipped:
        message = f"{len(skipped):,} of {samples.count:,} images do not decode and were skipped; one is {skipped[0]}"
        warnings.warn(message, SkippedImagesWarning, stacklevel=3)
