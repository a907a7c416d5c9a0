"""What a stored detector must hold: which arrays, of which shapes, with which numbers in them.

A digest tells whether a file is as it was written. It does not tell whether it was written well, and older files have
none. So names, shapes and dtypes are checked, and what scores silently depend on: that eigenvectors are orthonormal,
eigenvalues in order, counts those of the rows, and the last layer the one that was fitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.core.detector_state import BACKGROUND, SCATTER
from pnml.core.last_layer import head_digest
from pnml.core.sample import KEYS, OLDER_KEYS, SIZE
from pnml.core.scaling import EMBEDDING_SCALES
from pnml.core.state_checks import (
    are_texts,
    check_arrays,
    check_info,
    check_range,
    is_count,
    is_number,
    is_text,
    length_of,
)
from pnml.core.threshold_state import check_threshold_arrays, check_threshold_info, expected_threshold_arrays

if TYPE_CHECKING:
    from pnml.core.state_checks import Arrays, Rules, Shape

_PROBES = 4  # random directions, which any basis that is not orthonormal distorts
_PRECISION = 1e-8  # of eigenvectors; decompositions reach 1e-12


def check_state(arrays: Arrays, info: dict[str, Any]) -> None:
    """Raise ``ValueError`` for the first thing in which a stored detector is not one that can be saved."""
    check_info(info, _INFO, {"count", "norm_sum", "embedding_scale", "threshold"})
    threshold = info["threshold"]
    if threshold is not None:
        check_threshold_info(threshold)
    check_arrays(arrays, _expected(arrays, info))
    if "head_digest" in info and info["head_digest"] != head_digest(arrays["weight"], arrays["bias"]):
        raise ValueError("weight and bias are not those of the last layer that was fitted (head_digest)")
    for name in arrays:
        if name.startswith("eigenvectors"):
            _check_basis(arrays[name.replace("vectors", "values")], arrays[name], name)
    _check_rows(arrays, info)
    if threshold is not None:
        check_threshold_arrays(arrays, threshold)
        if threshold.get("n_classes", 0) not in {0, len(arrays["weight"])}:
            raise ValueError(f"the threshold is of {threshold['n_classes']} classes, expected {len(arrays['weight'])}")


def _expected(arrays: Arrays, info: dict[str, Any]) -> dict[str, tuple[str, Shape]]:
    """Return the dtype and the shape that each array must have."""
    classes, width = length_of(arrays, "weight", 2), length_of(arrays, "weight", 2, axis=1)
    widths = [width]
    expected: dict[str, tuple[str, Shape]] = {"weight": ("float64", (classes, width)), "bias": ("float64", (classes,))}
    if "ridges" in info:
        if not any(name.startswith(SCATTER[-1]) for name in arrays):
            raise ValueError("it has format 2, which no release wrote")
        widths += [length_of(arrays, f"eigenvalues.{number}", 1) for number in range(1, len(info["ridges"]) - 1)]
        expected |= {"class_counts": ("int64", (classes,)), "class_sums": ("float64", (classes, sum(widths)))}
        keys = [str(number) for number in range(len(widths))]
        if {*info["ridges"]} != {*keys, BACKGROUND}:
            raise ValueError(f"ridges are of {', '.join(info['ridges'])}, expected {', '.join(keys)}, {BACKGROUND}")
        rows = length_of(arrays, "sample", 2) if "sample" in arrays else length_of(arrays, f"{SCATTER[-1]}.0", 1)
        for key, size in zip([*keys, BACKGROUND], [*widths, width], strict=True):
            shapes = (size,), (size, size), (rows,)
            expected |= {f"{name}.{key}": ("float64", shape) for name, shape in zip(SCATTER, shapes, strict=True)}
    else:
        expected |= {"eigenvalues": ("float64", (width,)), "eigenvectors": ("float64", (width, width))}
    if len(info.get("layer_names", ())) != len(widths) - 1:
        raise ValueError(f"{len(info.get('layer_names', ()))} layers are named and {len(widths) - 1} stored")
    if "sample" in arrays:
        rows = length_of(arrays, "sample", 2)
        expected |= {"sample": ("float32", (rows, sum(widths))), _keys(arrays): ("int64", (rows,))}
        if "ridges" in info or "sample_classes" in arrays:
            expected["sample_classes"] = "int64", (rows,)
    if info["threshold"] is not None:
        expected |= expected_threshold_arrays(arrays, info["threshold"])
    return expected


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
        keys = arrays[_keys(arrays)]
        if len(keys) > min(SIZE, count) or (keys[1:] < keys[:-1]).any():
            raise ValueError(f"the sample holds {len(keys)} of {count} rows, or not in the order of their keys")
    if "sample_classes" in arrays:
        check_range(arrays["sample_classes"], classes, "sample_classes")
    for name in arrays:
        if name.startswith(SCATTER[-1]) and (arrays[name] < 0).any():
            raise ValueError(f"the array {name!r} holds leverages below 0")


def _keys(arrays: Arrays) -> str:
    return OLDER_KEYS if OLDER_KEYS in arrays else KEYS


_INFO: Rules = {
    "count": (lambda value: is_count(value) and value > 0, "a whole number above 0"),
    "left_out": (is_count, "a whole number, not negative"),
    "norm_sum": (lambda value: is_number(value) and value >= 0, "a number, not negative"),
    "embedding_scale": (lambda value: value in EMBEDDING_SCALES, f"one of {', '.join(EMBEDDING_SCALES)}"),
    "embedding_length": (lambda value: is_number(value) and value > 0, "a number above 0"),
    "bias_scale": (is_number, "a number"),
    "label_noise": (lambda value: is_number(value) and 0 <= value < 1, "a number from 0 to below 1"),
    "head_digest": (is_text, "text"),
    "layer_names": (are_texts, "a list of names"),
    "model_fingerprint": (lambda value: isinstance(value, dict), "names with values"),
    "head_notes": (are_texts, "a list of texts"),
    "task": (lambda value: value in ("multiclass", "multilabel"), "multiclass or multilabel"),
    "preparation": (lambda value: value is None or isinstance(value, dict), "names with values"),
    "reading": (lambda value: value is None or isinstance(value, dict), "how a guard reads its model"),
    "ridges": (
        lambda value: isinstance(value, dict) and all(is_number(one) and one > 0 for one in value.values()),
        "numbers above 0",
    ),
}
