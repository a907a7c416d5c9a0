"""A detector as arrays and numbers to be stored, and back, checked for what scores silently depend on.

What is stored is what regrets are computed from, in the precision in which they are: no training rows, and no sums that
more rows could be added to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.core.geometry import BlockGeometry, EmbeddingGeometry, Geometry
from pnml.core.last_layer import head_digest
from pnml.core.layout import Layout
from pnml.core.model import ScoringModel
from pnml.core.profile import Profile
from pnml.core.sample import KEYS, SIZE, RowSample
from pnml.core.scaling import EMBEDDING_SCALES
from pnml.core.scorer import Scorer
from pnml.core.state_checks import are_texts, check_arrays, check_info, is_count, is_number, is_text, length_of
from pnml.core.subspace import Subspace
from pnml.core.threshold_state import (
    check_threshold_arrays,
    check_threshold_info,
    expected_threshold_arrays,
    threshold_from_state,
    threshold_to_state,
)

if TYPE_CHECKING:
    from pnml.core.calibration import Threshold
    from pnml.core.detector import Detector, Task
    from pnml.core.scaling import EmbeddingScale
    from pnml.core.state_checks import Arrays, Rules, Shape

KIND = "pnml.detector"
VERSION = 5

_PROBES = 4  # random directions, which any basis that is not orthonormal distorts
_PRECISION = 1e-8  # of eigenvectors; decompositions reach 1e-12


@dataclass(frozen=True, eq=False)
class Loaded:
    """What a stored detector is made of; its attributes are described at :class:`~pnml.Detector`."""

    scorer: Scorer
    embedding_scale: EmbeddingScale
    task: Task
    count: int
    left_out: int
    norm_sum: float
    spectrum: np.ndarray[Any, Any]
    sample: RowSample
    layer_names: tuple[str, ...]
    threshold: Threshold | None
    preparation: dict[str, Any] | None
    model_fingerprint: dict[str, str]
    head_notes: tuple[str, ...]
    reading: dict[str, Any] | None

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths of the layers of a row."""
        return self.scorer.model.layout.widths


def to_state(detector: Detector) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays of a fitted detector, and what else there is to store."""
    scorer = detector.scorer
    model = scorer.model
    arrays: Arrays = {"weight": _exact(detector.weight), "bias": _exact(detector.bias), KEYS: detector.sample_keys}
    if model.geometry is None:
        arrays |= {"eigenvalues": detector.subspace.eigenvalues, "eigenvectors": detector.subspace.eigenvectors}
    else:
        parts = _parts(model.geometry)
        arrays |= {name: _exact(values) if scorer.single else values for name, values in parts.items()}
        arrays["spectrum"] = detector.spectrum
    info: dict[str, Any] = {
        "count": detector.count,
        "left_out": detector.left_out,
        "norm_sum": detector.mean_norm * detector.count,
        "embedding_scale": detector.embedding_scale,
        "input_layer": detector.input_layer,
        "widths": model.layout.widths,
        "length": model.length,
        "bias_scale": model.bias_scale,
        "label_noise": model.label_noise,
        "single": scorer.single,
        "head_digest": detector.head_digest,
        "layer_names": detector.layer_names,
        "model_fingerprint": detector.model_fingerprint,
        "head_notes": detector.head_notes,
        "preparation": detector.preparation,
        "reading": detector.reading,
        "task": detector.task,
        "numbers": None if model.geometry is None else _numbers(model.geometry),
        "threshold": None,
    }
    if detector.threshold is not None:
        of_threshold, info["threshold"] = threshold_to_state(detector.threshold)
        arrays |= of_threshold
    _check(arrays, info)
    return arrays, info


def from_state(arrays: Arrays, info: dict[str, Any]) -> Loaded:
    """Return what :func:`to_state` was given; raise ``ValueError`` for the first thing that no detector has."""
    _check(arrays, info)
    weight = arrays["weight"].astype(np.float64)
    bias = arrays["bias"].astype(np.float64)
    scale = info["embedding_scale"]
    is_auto = scale == "auto"
    layout = Layout(tuple(info["widths"]), scale != "natural", whole=not is_auto, input_layer=info["input_layer"])
    subspace = None
    geometry = None
    if is_auto:
        geometry = _geometry(arrays, info["numbers"], len(layout.block_widths) - 1)
    else:
        subspace = Subspace(arrays["eigenvalues"], arrays["eigenvectors"], info["count"])
    model = ScoringModel(
        weight, bias, layout, subspace, geometry, info["length"], info["bias_scale"], info["label_noise"]
    )
    sample = RowSample(arrays[KEYS], np.empty((len(arrays[KEYS]), 0), dtype=np.float32))
    threshold = None if info["threshold"] is None else threshold_from_state(arrays, info["threshold"])
    return Loaded(
        scorer=Scorer(model, single=info["single"]),
        embedding_scale=scale,
        task=info["task"],
        count=info["count"],
        left_out=info["left_out"],
        norm_sum=info["norm_sum"],
        spectrum=arrays["spectrum"] if subspace is None else subspace.spectrum,
        sample=sample,
        layer_names=tuple(info["layer_names"]),
        threshold=threshold,
        preparation=info["preparation"],
        model_fingerprint=info["model_fingerprint"],
        head_notes=tuple(info["head_notes"]),
        reading=info["reading"],
    )


def _exact(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array in float32 where that loses nothing, as for the weights of most networks."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    return single if np.array_equal(single, values) else values


def _parts(geometry: Geometry) -> Arrays:
    """Return the arrays of a geometry."""
    embedding = geometry.embedding
    arrays = {f"embedding.{name}": getattr(embedding, name) for name in _EMBEDDING}
    for number, block in enumerate(geometry.blocks):
        arrays |= {f"mean.{number}": block.mean, f"whitening.{number}": block.whitening}
    arrays |= dict(zip(_PROFILE, geometry.profile.arrays, strict=True))
    return arrays


def _numbers(geometry: Geometry) -> dict[str, float]:
    """Return the numbers of a geometry."""
    profile = geometry.profile
    numbers = {name: float(getattr(profile, name)) for name in ("smallest", "limit", "reach")}
    return numbers | {"row_share": geometry.embedding.row_share, "typical": geometry.embedding.typical}


_EMBEDDING = ("mean", "whitening", "background", "centres", "row_shares")
_PROFILE = ("profile.centre", "profile.spread", "profile.mixing", "profile.push")


def _geometry(arrays: Arrays, numbers: dict[str, float], blocks: int) -> Geometry:
    wide = {name: values.astype(np.float64) for name, values in arrays.items() if values.dtype == np.float32}
    arrays = arrays | wide
    embedding = EmbeddingGeometry(
        **{name: arrays[f"embedding.{name}"] for name in _EMBEDDING},
        row_share=numbers["row_share"],
        typical=numbers["typical"],
    )
    centre, spread, mixing, push = (arrays[name] for name in _PROFILE)
    profile = Profile(numbers["smallest"], centre, spread, mixing, push, numbers["limit"], numbers["reach"])
    others = (BlockGeometry(arrays[f"mean.{n}"], arrays[f"whitening.{n}"]) for n in range(blocks))
    return Geometry(embedding, tuple(others), profile)


def _check(arrays: Arrays, info: dict[str, Any]) -> None:
    """Raise ``ValueError`` for the first thing in which a stored detector is not one that can be used."""
    check_info(info, _RULES, {*_RULES}, closed=True)
    threshold = info["threshold"]
    if threshold is not None:
        check_threshold_info(threshold)
    check_arrays(arrays, _expected(arrays, info))
    if info["head_digest"] != head_digest(arrays["weight"], arrays["bias"]):
        raise ValueError("weight and bias are not those of the last layer that was fitted (head_digest)")
    if len(info["layer_names"]) != len(info["widths"]) - 1:
        raise ValueError(f"{len(info['layer_names'])} layers are named and {len(info['widths']) - 1} stored")
    if "eigenvectors" in arrays:
        _check_basis(arrays["eigenvalues"], arrays["eigenvectors"])
    if (arrays[KEYS][1:] < arrays[KEYS][:-1]).any():
        raise ValueError("the keys of the sampled rows are not in their order")
    if threshold is not None:
        check_threshold_arrays(arrays, threshold)
        if threshold.get("n_classes", 0) not in {0, len(arrays["weight"])}:
            raise ValueError(f"the threshold is of {threshold['n_classes']} classes, expected {len(arrays['weight'])}")


def _expected(arrays: Arrays, info: dict[str, Any]) -> dict[str, tuple[str, Shape]]:
    """Return the dtype and the shape that each array must have."""
    classes = length_of(arrays, "weight", 2)
    width = length_of(arrays, "weight", 2, axis=1)
    if info["widths"][0] != width:
        raise ValueError(f"the embedding is {info['widths'][0]} wide, and the last layer takes {width} features")
    shapes: dict[str, Shape] = {"weight": (classes, width), "bias": (classes,)}
    if info["embedding_scale"] == "auto":
        first, *others = Layout(tuple(info["widths"]), input_layer=info["input_layer"]).block_widths
        shapes |= {"embedding.mean": (first,), "embedding.whitening": (first, first), "embedding.background": (first,)}
        shapes |= {"embedding.centres": (classes, first), "embedding.row_shares": (classes,), "spectrum": (first,)}
        for number, size in enumerate(others):
            shapes |= {f"mean.{number}": (size,), f"whitening.{number}": (size, size)}
        blocks = 1 + len(others)
        shapes |= dict(zip(_PROFILE, ((blocks,), (blocks,), (blocks, blocks), (blocks,)), strict=True))
        if info["numbers"] is None:
            raise ValueError("the entry 'numbers' is missing")
    else:
        shapes |= {"eigenvalues": (width,), "eigenvectors": (width, width)}
    expected = {name: (_float_of(arrays, name), shape) for name, shape in shapes.items()}
    expected[KEYS] = "int64", (min(SIZE, info["count"]),)
    if info["threshold"] is not None:
        expected |= expected_threshold_arrays(arrays, info["threshold"])
    return expected


def _float_of(arrays: Arrays, name: str) -> str:
    """Return float32 for an array that has it, where both floats are allowed, and float64 for any other."""
    return "float32" if name in arrays and arrays[name].dtype == np.float32 else "float64"


def _check_basis(eigenvalues: np.ndarray[Any, Any], eigenvectors: np.ndarray[Any, Any]) -> None:
    """Check that eigenvalues descend to no less than 0, and that eigenvectors are orthonormal."""
    if (np.diff(eigenvalues) > 0).any() or (eigenvalues < 0).any():
        raise ValueError("the eigenvalues are not in descending order, or below 0")
    probes = np.random.default_rng(0).normal(size=(len(eigenvectors), _PROBES))
    with np.errstate(all="ignore"):
        off = np.linalg.norm(eigenvectors.T @ (eigenvectors @ probes) - probes) / np.linalg.norm(probes)
    if not off <= _PRECISION:
        raise ValueError(f"the array 'eigenvectors' is not orthonormal: it is off by {off:.1g}")


def _are_widths(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(is_count(one) and one > 0 for one in value)


def _are_numbers(value: Any) -> bool:
    names = {"smallest", "limit", "reach", "row_share", "typical"}
    return value is None or (isinstance(value, dict) and {*value} == names and all(map(is_number, value.values())))


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _is_optional_mapping(value: Any) -> bool:
    return value is None or isinstance(value, dict)


_RULES: Rules = {
    "count": (lambda value: is_count(value) and value > 0, "a whole number above 0"),
    "left_out": (is_count, "a whole number, not negative"),
    "norm_sum": (lambda value: is_number(value) and value >= 0, "a number, not negative"),
    "embedding_scale": (lambda value: value in EMBEDDING_SCALES, f"one of {', '.join(EMBEDDING_SCALES)}"),
    "input_layer": (lambda value: isinstance(value, bool), "true or false"),
    "widths": (_are_widths, "a list of whole numbers above 0"),
    "length": (lambda value: is_number(value) and value > 0, "a number above 0"),
    "bias_scale": (is_number, "a number"),
    "label_noise": (lambda value: is_number(value) and 0 <= value < 1, "a number from 0 to below 1"),
    "single": (lambda value: isinstance(value, bool), "true or false"),
    "head_digest": (is_text, "text"),
    "layer_names": (are_texts, "a list of names"),
    "model_fingerprint": (_is_mapping, "names with values"),
    "head_notes": (are_texts, "a list of texts"),
    "preparation": (_is_optional_mapping, "names with values"),
    "reading": (_is_optional_mapping, "names with values"),
    "task": (lambda value: value in ("multiclass", "multilabel"), "multiclass or multilabel"),
    "numbers": (_are_numbers, "the numbers of a geometry"),
    "threshold": (_is_optional_mapping, "names with values"),
}
