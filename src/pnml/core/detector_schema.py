"""What a stored detector must hold: which arrays, of which shapes, with which numbers in them.

A digest tells whether a file is as it was written. It does not tell whether it was written well, and older files have
none. So names, shapes and dtypes are checked, and what scores silently depend on: that eigenvectors are orthonormal,
eigenvalues in order, counts those of the rows, and the last layer the one that was fitted.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.core.detector_state import BACKGROUND, SCATTER
from pnml.core.last_layer import head_digest
from pnml.core.sample import SIZE
from pnml.core.scaling import EMBEDDING_SCALES

if TYPE_CHECKING:
    from collections.abc import Callable

    Arrays = dict[str, np.ndarray[Any, Any]]
    Shape = tuple[int, ...]

_PROBES = 4  # random directions, which any basis that is not orthonormal distorts
_PRECISION = 1e-8  # of eigenvectors; decompositions reach 1e-12


def check_state(arrays: Arrays, info: dict[str, Any]) -> None:
    """Raise ``ValueError`` for the first thing in which a stored detector is not one that can be saved."""
    _check_info(info, _INFO, {"count", "norm_sum", "embedding_scale", "threshold"})
    threshold = info["threshold"]
    if threshold is not None:
        _check_info(threshold, _THRESHOLD, {*_THRESHOLD} - {"by", "n_classes"}, closed=True)
    _check_arrays(arrays, _expected(arrays, info))
    if "head_digest" in info and info["head_digest"] != head_digest(arrays["weight"], arrays["bias"]):
        raise ValueError("weight and bias are not those of the last layer that was fitted (head_digest)")
    for name in arrays:
        if name.startswith("eigenvectors"):
            _check_basis(arrays[name.replace("vectors", "values")], arrays[name], name)
    _check_rows(arrays, info)
    if threshold is not None:
        _check_calibration(arrays, threshold)


def _expected(arrays: Arrays, info: dict[str, Any]) -> dict[str, tuple[str, Shape]]:
    """Return the dtype and the shape that each array must have."""
    classes, width = _length(arrays, "weight", 2), _length(arrays, "weight", 2, axis=1)
    widths = [width]
    expected: dict[str, tuple[str, Shape]] = {"weight": ("float64", (classes, width)), "bias": ("float64", (classes,))}
    if "ridges" in info:
        if not any(name.startswith(SCATTER[-1]) for name in arrays):
            raise ValueError("it has format 2, which no release wrote")
        widths += [_length(arrays, f"eigenvalues.{number}", 1) for number in range(1, len(info["ridges"]) - 1)]
        expected |= {"class_counts": ("int64", (classes,)), "class_sums": ("float64", (classes, sum(widths)))}
        keys = [str(number) for number in range(len(widths))]
        if {*info["ridges"]} != {*keys, BACKGROUND}:
            raise ValueError(f"ridges are of {', '.join(info['ridges'])}, expected {', '.join(keys)}, {BACKGROUND}")
        rows = _length(arrays, "sample", 2) if "sample" in arrays else _length(arrays, f"{SCATTER[-1]}.0", 1)
        for key, size in zip([*keys, BACKGROUND], [*widths, width], strict=True):
            shapes = (size,), (size, size), (rows,)
            expected |= {f"{name}.{key}": ("float64", shape) for name, shape in zip(SCATTER, shapes, strict=True)}
    else:
        expected |= {"eigenvalues": ("float64", (width,)), "eigenvectors": ("float64", (width, width))}
    if len(info.get("layer_names", ())) != len(widths) - 1:
        raise ValueError(f"{len(info.get('layer_names', ()))} layers are named and {len(widths) - 1} stored")
    if "sample" in arrays:
        rows = _length(arrays, "sample", 2)
        expected |= {"sample": ("float32", (rows, sum(widths))), "sample_keys": ("int64", (rows,))}
        if "ridges" in info or "sample_classes" in arrays:
            expected["sample_classes"] = "int64", (rows,)
    if info["threshold"] is not None:
        scores = _length(arrays, "calibration_scores", 1)
        expected["calibration_scores"] = "float64", (scores,)
        if "calibration_predictions" in arrays or info["threshold"].get("by") is not None:
            expected["calibration_predictions"] = "int64", (scores,)
    return expected


def _length(arrays: Arrays, name: str, dimensions: int, axis: int = 0) -> int:
    if name not in arrays:
        raise ValueError(f"the array {name!r} is missing")
    if arrays[name].ndim != dimensions:
        raise ValueError(f"the array {name!r} has shape {arrays[name].shape}, expected {dimensions} dimensions")
    return int(arrays[name].shape[axis])


def _check_arrays(arrays: Arrays, expected: dict[str, tuple[str, Shape]]) -> None:
    for name in sorted({*arrays, *expected}):
        if name not in arrays:
            raise ValueError(f"the array {name!r} is missing")
        if name not in expected:
            raise ValueError(f"the array {name!r} belongs to no such detector")
        array, (dtype, shape) = arrays[name], expected[name]
        if (array.dtype, array.shape) != (np.dtype(dtype), shape):
            found = f"{array.dtype} of shape {array.shape}"
            raise ValueError(f"the array {name!r} holds {found}, expected {dtype} of shape {shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"the array {name!r} holds numbers that are not finite")


def _check_basis(eigenvalues: np.ndarray[Any, Any], eigenvectors: np.ndarray[Any, Any], name: str) -> None:
    """Check that eigenvalues descend to no less than 0, and that eigenvectors are orthonormal."""
    if (np.diff(eigenvalues) > 0).any() or (eigenvalues < 0).any():
        raise ValueError(f"the eigenvalues of {name!r} are not in descending order, or below 0")
    probes = np.random.default_rng(0).normal(size=(len(eigenvectors), _PROBES))
    with np.errstate(all="ignore"):
        off = np.linalg.norm(eigenvectors.T @ (eigenvectors @ probes) - probes) / np.linalg.norm(probes)
    if not off <= _PRECISION:
        raise ValueError(f"the array {name!r} is not orthonormal: it is off by {off:.1g}")


def _check_rows(arrays: Arrays, info: dict[str, Any]) -> None:
    """Check the numbers about training rows against each other."""
    count, classes = info["count"], len(arrays["weight"])
    if "class_counts" in arrays:
        counts = arrays["class_counts"].tolist()
        if min(counts) < 0 or sum(counts) != count:
            raise ValueError(f"the classes have {sum(counts)} rows in all, expected {count}")
    if "sample" in arrays:
        keys = arrays["sample_keys"]
        if len(keys) > min(SIZE, count) or (keys[1:] < keys[:-1]).any():
            raise ValueError(f"the sample holds {len(keys)} of {count} rows, or not in the order of their keys")
    if "sample_classes" in arrays:
        _check_range(arrays["sample_classes"], classes, "sample_classes")
    for name in arrays:
        if name.startswith(SCATTER[-1]) and (arrays[name] < 0).any():
            raise ValueError(f"the array {name!r} holds leverages below 0")


def _check_calibration(arrays: Arrays, threshold: dict[str, Any]) -> None:
    scores = arrays["calibration_scores"]
    if not len(scores) or (np.diff(scores) < 0).any():
        raise ValueError(f"the {len(scores)} calibration scores are not ascending, or there are none")
    if "calibration_predictions" in arrays:
        _check_range(arrays["calibration_predictions"], threshold.get("n_classes", 0), "calibration_predictions")
    if threshold.get("n_classes", 0) not in {0, len(arrays["weight"])}:
        raise ValueError(f"the threshold is of {threshold['n_classes']} classes, expected {len(arrays['weight'])}")


def _check_range(found: np.ndarray[Any, Any], classes: int, name: str) -> None:
    if len(found) and not 0 <= found.min() <= found.max() < classes:
        raise ValueError(f"the array {name!r} holds {found.min()} to {found.max()}, expected 0 to {classes - 1}")


def _check_info(
    info: Any, rules: dict[str, tuple[Callable[[Any], bool], str]], needed: set[str], *, closed: bool = False
) -> None:
    if not isinstance(info, dict):
        raise ValueError(f"expected names with values, got {info!r}")  # noqa: TRY004 - what a file holds
    for name in sorted(needed - info.keys()):
        raise ValueError(f"the entry {name!r} is missing")
    for name, value in info.items():
        if name in rules and not rules[name][0](value):
            raise ValueError(f"the entry {name!r} is {value!r}, expected {rules[name][1]}")
        if closed and name not in rules:
            raise ValueError(f"the entry {name!r} is not known")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 < value < 1


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


def _is_interval(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_number, value)) and value[0] <= value[1]


_INFO: dict[str, tuple[Callable[[Any], bool], str]] = {
    "count": (lambda value: _is_count(value) and value > 0, "a whole number above 0"),
    "left_out": (_is_count, "a whole number, not negative"),
    "norm_sum": (lambda value: _is_number(value) and value >= 0, "a number, not negative"),
    "embedding_scale": (lambda value: value in EMBEDDING_SCALES, f"one of {', '.join(EMBEDDING_SCALES)}"),
    "embedding_length": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    "bias_scale": (_is_number, "a number"),
    "label_noise": (lambda value: _is_number(value) and 0 <= value < 1, "a number from 0 to below 1"),
    "head_digest": (_is_text, "text"),
    "layer_names": (_are_texts, "a list of names"),
    "model_fingerprint": (lambda value: isinstance(value, dict), "names with values"),
    "head_notes": (_are_texts, "a list of texts"),
    "task": (lambda value: value in ("multiclass", "multilabel"), "multiclass or multilabel"),
    "preparation": (lambda value: value is None or isinstance(value, dict), "names with values"),
    "ridges": (
        lambda value: isinstance(value, dict) and all(_is_number(one) and one > 0 for one in value.values()),
        "numbers above 0",
    ),
}

_THRESHOLD: dict[str, tuple[Callable[[Any], bool], str]] = {
    "value": (_is_number, "a number"),
    "false_alarm_rate": (_is_share, "a number between 0 and 1"),
    "interval": (_is_interval, "two numbers, ascending"),
    "confidence": (_is_share, "a number between 0 and 1"),
    "source": (_is_text, "text"),
    "by": (lambda value: value in (None, "prediction"), "null or prediction"),
    "n_classes": (_is_count, "a whole number, not negative"),
}
