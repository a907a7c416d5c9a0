"""Reports of score tables, whose samples are not labelled as in-distribution or OOD."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.core.detector import Detector
from pnml.io.decode import UndecodableError, read_image
from pnml.io.images import open_images
from pnml.io.score_table import read_scores
from pnml.io.scores import STRANGEST
from pnml.report.by_class import class_table
from pnml.report.model import Report, ScoredSet
from pnml.report.scored_layers import layers_of
from pnml.report.thumbnails import extremes, thumbnail

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

_BATCH = 256


def report_of_scores(
    path: Path, *, images: Path | None = None, detector: Path | None = None, class_names: Iterable[str] = ()
) -> Report:
    """Return the report of a table of scores.

    Args:
        path: a table written by ``pnml score``.
        images: the folder or parquet file that was scored, for the gallery.
        detector: the detector it was scored with, for the threshold, the spectrum and the order of its layers.
        class_names: by class number.
    """
    table = read_scores(path)
    ids = table["id"].tolist()
    loaded = None if detector is None else Detector.load(detector)
    layers = layers_of(path, table, None if loaded is None else loaded.layer_names)
    scored = ScoredSet(
        name=path.name if images is None else images.name,
        role="unlabelled",
        regret=table["regret"],
        prediction=table.get("prediction"),
        probability=table.get("probability"),
        images=None if images is None else _thumbnails(images, ids, np.concatenate(extremes(table["regret"])), path),
        ids=ids,
        leverage=layers.leverage,
        strangest=layers.strangest,
    )
    facts = {"Scores": f"{path.name}, {len(scored):,} samples"}
    calibration = None if loaded is None else loaded.threshold
    threshold, spectrum = _threshold(table) if calibration is None else calibration.value, None
    if calibration is not None and calibration.by is not None:
        own = sum(one.is_own for one in calibration.classes)
        facts["Threshold"] = f"by predicted class; {own:,} of {calibration.n_classes:,} classes have one of their own"
    if STRANGEST in table and not layers.names:
        facts["Layers"] = "in an order that the detector knows: pass --detector to see which depth gave samples away"
    if images is not None:
        facts["Images"] = str(images)
    if detector is not None and loaded is not None:
        spectrum = loaded.subspace.spectrum
        facts["Detector"] = (
            f"{detector.name}: {loaded.n_features:,} features, {loaded.n_classes:,} classes, fitted on "
            f"{loaded.subspace.count:,} samples, rank {loaded.subspace.rank:,}"
        )
    names = tuple(class_names)
    decided = "prediction" in table and "is_ood" in table
    return Report(
        title=f"Regret of {scored.name}",
        facts=facts,
        sets=(scored,),
        by_class=class_table(table["prediction"], table["is_ood"], names, calibration) if decided else None,
        class_names=names,
        spectrum=spectrum,
        threshold=threshold,
        layer_names=layers.names,
    )


def _threshold(table: dict[str, NDArray[Any]]) -> float | None:
    """Return a threshold with the decisions of the table: the largest regret that is not flagged.

    None if there is no such threshold, because every predicted class has its own.
    """
    if "is_ood" not in table:
        return None
    flagged, kept = table["regret"][table["is_ood"]], table["regret"][~table["is_ood"]]
    if not kept.size:
        return float(np.nextafter(table["regret"].min(), 0))
    return float(kept.max()) if not (flagged <= kept.max()).any() else None


def _thumbnails(images: Path, ids: list[str], rows: NDArray[np.intp], path: Path) -> dict[int, NDArray[np.uint8]]:
    """Return the thumbnails of some rows, without images that cannot be read."""
    wanted = {ids[row]: int(row) for row in rows}
    found: dict[int, NDArray[np.uint8]] = {}
    for names, encoded in open_images(images).read(0, _BATCH):
        for name, image in zip(names.tolist(), encoded, strict=True):
            if str(name) in wanted:
                try:
                    found[wanted[str(name)]] = thumbnail(read_image(image))
                except (OSError, UndecodableError):
                    continue
    if not found:
        raise ValueError(f"no id in {path} is an image in {images}: pass the folder or parquet file that was scored")
    return found
