"""Fit and score on a cluster, with Ray Data: the numbers of one machine, on as many as there are.

The dataset that Ray Data maps over holds no embeddings, but which rows of the input to read: a worker reads its piece
itself, with the readers of the commands, so that every row keeps its name, and a piece that is done again, because its
worker was killed, gives the same sum or replaces the same shard. Ray Data's own parquet writer is not used: it names
files after the run and writes them in place, so that a killed writer leaves half a file, and a job that is started a
second time doubles rows. Shards named after the rows they hold, and renamed when they are whole, do neither.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from safetensors import safe_open

from pnml.backend.progress import track
from pnml.core.detector import Detector
from pnml.engines.cluster import cluster
from pnml.engines.mapping import mapped
from pnml.engines.pieces import pieces_of
from pnml.engines.summary import Summary
from pnml.engines.tree import add_tables, reduce_in_tree
from pnml.engines.work import Scoring, Summing, statistic_of
from pnml.io.embedded import EmbeddedImages
from pnml.io.embeddings import EmbeddingFile, open_embeddings
from pnml.io.images import open_images
from pnml.io.paths import path_or_uri
from pnml.io.preparation import Preparation
from pnml.io.shards import Shards

if TYPE_CHECKING:
    from pnml.core.correlation import Correlation
    from pnml.io.chunk import Samples
    from pnml.io.paths import PathOrUri
    from pnml.pytorch.guard import Guard


class SkippedImagesWarning(UserWarning):
    """Some images do not decode, and were left out."""


def fit(
    source: PathOrUri | Samples,
    subject: Detector | Guard,
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
        subject: a :class:`~pnml.Detector`, of which the head and the scale are taken, or a :class:`~pnml.Guard`, which
            is fitted too. A guard's model is sent to the workers, which must be able to import its classes.
        preparation: what happens to images before the model sees them; nothing but scaling to [0, 1] when left out.
        batch_size: how many images go through the model at once.
        cpus: how many cores to use when a Ray of this machine is started.
        progress: show a progress bar on stderr.

    Returns:
        A new fitted detector.

    >>> detector = fit("s3://bucket/train", Detector(weight, bias))  # doctest: +SKIP
    """
    samples = _opened(source, subject, preparation, batch_size)
    n_features = subject.n_features if isinstance(subject, Detector) else None
    unit_norm = subject.embedding_scale != "natural"
    statistic, skipped = summed(samples, n_features, unit_norm=unit_norm, cpus=cpus, progress=progress)
    _warn_of(skipped, samples)
    head = subject if isinstance(subject, Detector) else subject.head
    detector = Detector(head.weight, head.bias, embedding_scale=subject.embedding_scale).merge(statistic)
    if not isinstance(subject, Detector):
        subject.detector = detector
    return detector


def score(
    source: PathOrUri | Samples,
    subject: Detector | Guard,
    out: PathOrUri,
    *,
    preparation: Preparation | None = None,
    batch_size: int = 128,
    restart: bool = False,
    cpus: int | None = None,
    progress: bool = True,
) -> Summary:
    """Score embeddings in parquet with a fitted detector, or images with a fitted guard, into a folder of parquet.

    The columns are those of ``pnml score``. Run again after it was killed, it goes on with the shards that are missing.

    Args:
        source: as for :func:`fit`.
        subject: a fitted :class:`~pnml.Detector` or :class:`~pnml.Guard`.
        out: the folder, a path or a URI; every worker must reach it.
        preparation: as for :func:`fit`.
        batch_size: as for :func:`fit`.
        restart: score everything anew, whatever the folder holds of this or of an earlier table.
        cpus: as for :func:`fit`.
        progress: as for :func:`fit`.

    >>> score("s3://bucket/new", detector, "s3://bucket/scores").rows  # doctest: +SKIP
    1000000000
    """
    samples = _opened(source, subject, preparation, batch_size)
    summary = scored(
        samples,
        subject if isinstance(subject, Detector) else subject.fitted(),
        path_or_uri(str(out)),
        restart=restart,
        cpus=cpus,
        progress=progress,
    )
    _warn_of(list(summary.skipped), samples)
    return summary


def summed(
    samples: Samples, n_features: int | None, *, unit_norm: bool, cpus: int | None = None, progress: bool = True
) -> tuple[Correlation, list[str]]:
    """Sum the statistic of all samples: one partial sum for each piece, added in a tree on the workers.

    Args:
        samples: embeddings in parquet, or images; the guard of images knows its head afterwards.
        n_features: the width the embeddings must have; any when None.
        unit_norm: scale every row to norm 1.
        cpus: as for :func:`fit`.
        progress: as for :func:`fit`.

    Returns:
        The statistic, and the names of the images that did not decode.
    """
    work = Summing(_portable(samples), n_features, unit_norm)
    pieces = pieces_of(samples)
    with cluster(cpus) as ray:
        add = ray.remote(num_cpus=0, max_retries=-1)(add_tables)  # no core to wait for, and tried again like a piece
        parts = track(mapped(ray, work, pieces), "fit", total=len(pieces), shown=progress)
        (row,) = ray.get(reduce_in_tree(parts, add.remote)).to_pylist()
    return statistic_of(row)


def scored(
    samples: Samples,
    detector: Detector,
    out: PathOrUri,
    *,
    restart: bool = False,
    cpus: int | None = None,
    progress: bool = True,
) -> Summary:
    """Score all samples into shards; see :func:`score`."""
    shards, pieces = Shards(out), pieces_of(samples)
    work = Scoring(_portable(samples), detector, shards)
    dealt = hashlib.sha256(repr(pieces).encode()).hexdigest()
    summary = Summary()
    with cluster(cpus) as ray:
        shards.begin({**samples.fingerprint(), "detector": _digest(detector), "pieces": dealt}, restart=restart)
        for table in track(mapped(ray, work, pieces), "score", total=len(pieces), shown=progress):
            for row in ray.get(table).to_pylist():
                summary += Summary.from_json(json.loads(row["summary"]))
    shards.finish()
    return summary


def _opened(
    source: PathOrUri | Samples, subject: Detector | Guard, preparation: Preparation | None, batch_size: int
) -> Samples:
    if not isinstance(source, (str, Path)):
        return source
    place = path_or_uri(str(source))
    if isinstance(subject, Detector):
        return open_embeddings(place)
    return EmbeddedImages(
        open_images(place), preparation or Preparation(), subject, batch_size, strict=False, made_by={}
    )


def _portable(samples: Samples) -> Samples:
    """Give the samples as every worker can read them; a model is on the CPU then, and its head is known."""
    if isinstance(samples, EmbeddingFile) and not samples.starts:
        raise ValueError(f"{samples.path} is no parquet: the engine ray reads parquet files, or folders of them")
    if not isinstance(samples, EmbeddedImages):
        return samples
    if samples.guard.head_name is None:
        for chunk in samples.chunks():
            if len(chunk.ids):
                break
    return replace(samples, guard=deepcopy(samples.guard).cpu())


def _warn_of(skipped: list[str], samples: Samples) -> None:
    if len(skipped) == samples.count:
        raise ValueError(f"none of the {samples.count:,} images of {samples.path} decodes")
    if skipped:
        message = f"{len(skipped):,} of {samples.count:,} images do not decode and were left out; one is {skipped[0]}"
        warnings.warn(message, SkippedImagesWarning, stacklevel=3)


def _digest(detector: Detector) -> str:
    """Fingerprint everything that a detector's file would hold."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "detector.safetensors"
        detector.save(path)
        with safe_open(path, framework="numpy") as file:
            digest = hashlib.sha256(file.metadata()["info"].encode())
            for name in sorted(file.keys()):
                digest.update(name.encode() + file.get_tensor(name).tobytes())
    return digest.hexdigest()
