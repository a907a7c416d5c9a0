"""Reports of score tables, whose samples are not labelled as in-distribution or OOD."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.core.detector import Detector
from pnml.io.decode import UndecodableError, read_image
from pnml.io.images import open_images
from pnml.io.score_table import read_scores
from pnml.io.scores import LEVERAGE, STRANGEST, layer_labels
from pnml.report.checks import check_class_names, count_class_names
from pnml.report.model import Report, ScoredSet
from pnml.report.thumbnails import extremes, thumbnail

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.core.calibration import Threshold

_BATCH = 256
_ROUNDING = 1e-6  # relative, of a regret in float32


def report_of_scores(
    path: Path,
    *,
    images: Path | None = None,
    detector: Path | None = None,
    class_names: Iterable[str] = (),
    names_file: Path | None = None,
) -> Report:
    """Return the report of a table of scores.

    Args:
        path: a table written by ``pnml score``.
        images: the folder or parquet file that was scored, for the gallery.
        detector: the detector it was scored with, for what its calibration lets expect, the spectrum and the order of
            its layers.
        class_names: by class number.
        names_file: where they were read, for errors.
    """
    table, class_names = read_scores(path), tuple(class_names)
    ids = table["id"].tolist()
    loaded = None if detector is None else Detector.load(detector)
    if loaded is not None:
        check_class_names(class_names, loaded.n_classes, str(detector), names_file)
    elif class_names and "prediction" in table and (most := int(table["prediction"].max())) >= len(class_names):
        raise ValueError(
            f"{count_class_names(class_names, names_file)}, and {path} has class {most}: give one a line, from "
            "class 0 on"
        )
    names = _layer_names(table, None if loaded is None else loaded.watched_names)
    leverage = None
    if names and LEVERAGE + names[0] in table:
        leverage = np.stack([table[LEVERAGE + name] for name in names], axis=1)
    scored = ScoredSet(
        name=path.name if images is None else images.name,
        role="unlabelled",
        regret=table["regret"],
        prediction=table.get("prediction"),
        probability=table.get("probability"),
        images=None if images is None else _thumbnails(images, ids, np.concatenate(extremes(table["regret"])), path),
        ids=ids,
        p_value=table.get("p_value"),
        is_ood=table.get("is_ood"),
        leverage=leverage,
        strangest=_strangest(path, table, names) if names else None,
    )
    facts = {"Scores": f"{path.name}, {len(scored):,} samples"}
    if STRANGEST in table and not names:
        facts["Layers"] = "in an order that the detector knows: pass --detector to see where samples are strange"
    if images is not None:
        facts["Images"] = str(images)
    calibration = None if loaded is None else loaded.threshold
    if detector is not None and loaded is not None:
        facts |= _facts_of(detector, loaded)
        if calibration is not None:
            _check_decisions(path, table, detector, calibration)
    return Report(
        title=f"Regret of {scored.name}",
        facts=facts,
        sets=(scored,),
        class_names=class_names,
        spectrum=None if loaded is None else loaded.spectrum,
        calibration=calibration,
        threshold=_threshold(table) if calibration is None else None,
        layer_names=tuple(names[1:]),
    )


def _layer_names(table: dict[str, NDArray[Any]], fitted: tuple[str, ...] | None) -> list[str]:
    """Return the layers of a table, the embedding first; none where nothing says in which order they are."""
    if STRANGEST not in table:
        return []
    names = [name.removeprefix(LEVERAGE) for name in table if name.startswith(LEVERAGE)]
    return list(layer_labels(fitted)) if not names and fitted is not None else names


def _strangest(path: Path, table: dict[str, NDArray[Any]], names: list[str]) -> NDArray[np.int64]:
    strangest = table[STRANGEST].tolist()
    if unknown := sorted(set(strangest) - set(names)):
        raise ValueError(f"{path} names the layer {unknown[0]!r}, which is none of {names}: pass the detector it is of")
    return np.array([names.index(name) for name in strangest], dtype=np.int64)


def _facts_of(path: Path, detector: Detector) -> dict[str, str]:
    """Return what a page says about a detector, and about thresholds of its classes."""
    sizes = f"{detector.n_features:,} features, {detector.n_classes:,} classes"
    fitted = f"fitted on {detector.count:,} samples, rank {detector.rank:,}"
    facts, calibration = {"Detector": f"{path.name}: {sizes}, {fitted}"}, detector.threshold
    if calibration is not None and calibration.by is not None:
        own = sum(one.is_own for one in calibration.classes)
        facts["Threshold"] = f"by predicted class; {own:,} of {calibration.n_classes:,} classes have one of their own"
    return facts


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


def _check_decisions(path: Path, table: dict[str, NDArray[Any]], detector: Path, calibration: Threshold) -> None:
    """Raise ``ValueError`` if the detector decides otherwise than the table, beyond the rounding of a regret."""
    if "is_ood" not in table or (calibration.by is not None and "prediction" not in table):
        return
    regret, prediction = table["regret"], table.get("prediction")
    low, high = (calibration.is_ood(regret * (1 + step), prediction) for step in (-_ROUNDING, _ROUNDING))
    wrong = np.flatnonzero((low == high) & (low != table["is_ood"]))
    if wrong.size:
        row = int(wrong[0])
        decision = "flagged" if table["is_ood"][row] else "not flagged"
        raise ValueError(
            f"{path} was not decided by the threshold of {detector}: {table['id'][row]!r} has a regret of "
            f"{regret[row]:.6g} and is {decision} in the table. Pass the detector that it was scored with, score "
            "again, or leave out --detector"
        )


def _thumbnails(images: Path, ids: list[str], rows: NDArray[np.intp], path: Path) -> dict[int, NDArray[np.uint8]]:
    """Return the thumbnails of some rows, without images that cannot be read."""
    wanted = {ids[row]: int(row) for row in rows}
    thumbnails: dict[int, NDArray[np.uint8]] = {}
    for names, encoded in open_images(images).read(0, _BATCH):
        for name, image in zip(names.tolist(), encoded, strict=True):
            if str(name) in wanted:
                try:
                    thumbnails[wanted[str(name)]] = thumbnail(read_image(image))
                except (OSError, UndecodableError):
                    continue
    if not thumbnails:
        raise ValueError(f"no id in {path} is an image in {images}: pass the folder or parquet file that was scored")
    return thumbnails
