"""A detector as arrays and numbers to be stored, and back.

Of every layer the eigenvalues and eigenvectors of its scatter are stored, so that a loaded detector scores exactly as
the one that was saved. Σxxᵀ is put together again from them where rows are added or merged: scores do not need it, and
it takes longer than all else about loading. Files of the first version have the eigenvectors of Σxxᵀ itself.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.backend.deferred import DeferredMatrix
from pnml.core.correlation import Correlation
from pnml.core.depth import Geometry
from pnml.core.sample import RowSample
from pnml.core.scatter import Scatter
from pnml.core.subspace import Subspace, recompose
from pnml.core.threshold_state import threshold_from_state, threshold_to_state

if TYPE_CHECKING:
    from pnml.core.calibration import Threshold
    from pnml.core.detector import Detector

KIND, VERSION = "pnml.detector", 4
DIGEST_SINCE = 3
"""The first version all of whose files hold a digest of their content."""

Arrays = dict[str, np.ndarray[Any, Any]]
SCATTER = ("eigenvalues", "eigenvectors", "left_out")
BACKGROUND = "background"
"""Names of the arrays of a layer, which end in its number, or in "background"."""


class State(NamedTuple):
    """What a stored detector is made of, but for its last layer."""

    correlation: Correlation
    geometry: Geometry | None
    subspace: Subspace | None
    layer_names: tuple[str, ...]
    scales: tuple[float, float, float] | None
    threshold: Threshold | None
    preparation: dict[str, Any] | None


def to_state(detector: Detector) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays of a fitted detector, and what else there is to store."""
    correlation, geometry, threshold = detector.correlation, detector.geometry, detector.threshold
    arrays: Arrays = {"weight": detector.weight, "bias": detector.bias}
    info: dict[str, Any] = {
        "count": correlation.count,
        "left_out": correlation.left_out,
        "norm_sum": correlation.norm_sum,
        "embedding_scale": detector.embedding_scale,
        "embedding_length": detector.embedding_length,
        "bias_scale": detector.bias_scale,
        "label_noise": detector.label_noise,
        "head_digest": detector.head_digest,
        "layer_names": detector.layer_names,
        "model_fingerprint": detector.model_fingerprint,
        "head_notes": detector.head_notes,
        "task": detector.task,
        "threshold": None,
    }
    if detector.preparation is not None:
        info["preparation"] = detector.preparation
    if detector.reading is not None:
        info["reading"] = detector.reading
    if geometry is None:
        arrays |= {"eigenvalues": detector.subspace.eigenvalues, "eigenvectors": detector.subspace.eigenvectors}
    else:
        arrays |= {"class_counts": correlation.class_counts, "class_sums": correlation.class_sums}
        for key, scatter in _named(geometry):
            arrays |= {f"eigenvalues.{key}": scatter.eigenvalues, f"eigenvectors.{key}": scatter.eigenvectors}
            arrays[f"left_out.{key}"] = scatter.typical
        info["ridges"] = {key: scatter.ridge for key, scatter in _named(geometry)}
    if correlation.sample is not None:
        arrays |= correlation.sample.arrays()
    if threshold is not None:
        threshold_arrays, info["threshold"] = threshold_to_state(threshold)
        arrays |= threshold_arrays
    return arrays, info


def from_state(arrays: Arrays, info: dict[str, Any]) -> State:
    """Return what :func:`to_state` was given."""
    geometry, subspace, classes = None, None, None
    if "ridges" in info:
        classes = arrays["class_counts"], arrays["class_sums"]
        geometry = _restored(arrays, info["ridges"])
        matrices = [
            DeferredMatrix(len(scatter.eigenvalues), partial(scatter.correlation, *parts))
            for scatter, parts in zip(geometry.scatters, _split(geometry, classes), strict=True)
        ]
    else:
        subspace = Subspace(arrays["eigenvalues"], arrays["eigenvectors"], info["count"])
        basis = subspace.eigenvalues, subspace.eigenvectors
        matrices = [DeferredMatrix(subspace.n_features, partial(recompose, *basis))]
    correlation = Correlation.restore(
        matrices,
        info["count"],
        info["norm_sum"],
        unit_norm=info["embedding_scale"] != "natural",
        sample=RowSample.from_arrays(arrays),
        left_out=info.get("left_out", 0),
        classes=classes,
    )
    scales = None
    if "embedding_length" in info:
        scales = info["embedding_length"], info.get("bias_scale", 1.0), info.get("label_noise", 0.0)
    threshold = None if info["threshold"] is None else threshold_from_state(arrays, info["threshold"])
    names, preparation = tuple(info.get("layer_names", ())), info.get("preparation")
    return State(correlation, geometry, subspace, names, scales, threshold, preparation)


def _named(geometry: Geometry) -> list[tuple[str, Scatter]]:
    return [
        *((str(number), scatter) for number, scatter in enumerate(geometry.scatters)),
        (BACKGROUND, geometry.background),
    ]


def _restored(arrays: Arrays, ridges: dict[str, float]) -> Geometry:
    counts, sums = arrays["class_counts"], arrays["class_sums"]
    scatters, end = [], 0
    for number in range(len(ridges) - 1):
        start, end = end, end + len(arrays[f"eigenvalues.{number}"])
        scatters.append(_scatter(arrays, str(number), counts, sums[:, start:end], ridges))
    width = len(arrays[f"eigenvalues.{BACKGROUND}"])
    overall = sums[:, :width].sum(axis=0)[None]
    return Geometry(tuple(scatters), _scatter(arrays, BACKGROUND, counts.sum()[None], overall, ridges))


def _scatter(
    arrays: Arrays, key: str, counts: np.ndarray[Any, Any], sums: np.ndarray[Any, Any], ridges: dict[str, float]
) -> Scatter:
    eigenvalues, eigenvectors, typical = (arrays[f"{name}.{key}"] for name in SCATTER)
    return Scatter.restore(counts, sums, eigenvalues, eigenvectors, ridge=ridges[key], typical=typical)


def _split(geometry: Geometry, classes: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]) -> list[tuple[Any, Any]]:
    counts, sums = classes
    ends = np.cumsum([scatter.means.shape[1] for scatter in geometry.scatters])
    return [(counts, part) for part in np.split(sums, ends[:-1], axis=1)]
