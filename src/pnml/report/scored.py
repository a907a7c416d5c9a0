"""From a table of scores to a report: samples of which nobody knows whether they are in-distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.core.detector import Detector
from pnml.io.decode import UndecodableError, read_image
from pnml.io.images import open_images
from pnml.io.score_table import read_scores
from pnml.report.model import Report, ScoredSet
from pnml.report.pictures import extremes, thumbnail

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

_AT_ONCE = 256


def report_of_scores(
    path: Path, *, images: Path | None = None, detector: Path | None = None, class_names: Iterable[str] = ()
) -> Report:
    """Lay out a table of scores as a report.

    Args:
        path: a table that ``pnml score`` wrote.
        images: the folder or parquet file that was scored, for the gallery.
        detector: the detector it was scored with, for the threshold and the spectrum.
        class_names: by class number.
    """
    table = read_scores(path)
    ids = table["id"].tolist()
    scored = ScoredSet(
        name=path.name if images is None else images.name,
        role="unlabelled",
        regret=table["regret"],
        prediction=table.get("prediction"),
        probability=table.get("probability"),
        images=None if images is None else _pictures(images, ids, np.concatenate(extremes(table["regret"])), path),
        ids=ids,
    )
    facts = {"Scores": f"{path.name}, {len(scored):,} samples"}
    threshold, spectrum = _threshold(table), None
    if images is not None:
        facts["Images"] = str(images)
    if detector is not None:
        held = Detector.load(detector)
        spectrum = held.subspace.spectrum
        facts["Detector"] = (
            f"{detector.name}: {held.n_features:,} features to {held.n_classes:,} classes, fitted on "
            f"{held.subspace.count:,} samples, rank {held.subspace.rank:,}"
        )
        threshold = held.threshold.value if held.threshold else threshold
    return Report(
        title=f"How far predictions on “{scored.name}” can be trusted",
        facts=facts,
        sets=(scored,),
        class_names=tuple(class_names),
        spectrum=spectrum,
        threshold=threshold,
    )


def _threshold(table: dict[str, NDArray[Any]]) -> float | None:
    """Give a threshold that decides as the table did: the largest regret that was not flagged."""
    if "is_ood" not in table:
        return None
    kept = table["regret"][~table["is_ood"]]
    return float(kept.max()) if kept.size else float(np.nextafter(table["regret"].min(), 0))


def _pictures(place: Path, ids: list[str], rows: NDArray[np.intp], path: Path) -> dict[int, NDArray[np.uint8]]:
    """Decode and shrink the pictures of some rows; those that do not decode are left out."""
    wanted = {ids[row]: int(row) for row in rows}
    found: dict[int, NDArray[np.uint8]] = {}
    for names, encoded in open_images(place).read(0, _AT_ONCE):
        for name, one in zip(names.tolist(), encoded, strict=True):
            if str(name) in wanted:
                try:
                    found[wanted[str(name)]] = thumbnail(read_image(one))
                except UndecodableError:
                    continue
    if not found:
        raise ValueError(f"no id of {path} is a picture of {place}: give the folder or parquet file that was scored")
    return found
