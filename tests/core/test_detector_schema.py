"""Files that pnml did not write, though their digest is right: refused for what their scores would be wrong by."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pnml import Detector
from pnml.backend.state import save_state
from pnml.core.detector_schema import check_state
from pnml.core.detector_state import KIND, SCATTER, VERSION, to_state
from pnml.core.last_layer import head_digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Arrays = dict[str, np.ndarray[Any, Any]]
Info = dict[str, Any]

RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(3, 6))
TRAIN, LAYER = RNG.normal(size=(80, 6)), RNG.normal(size=(80, 4))
LEFT_OUT = SCATTER[-1]


def deep() -> tuple[Arrays, Info]:
    """Return the state of a detector with a layer and a threshold by class."""
    return deepcopy(_deep())


@cache
def _deep() -> tuple[Arrays, Info]:
    detector = Detector(WEIGHT).fit(TRAIN, features=[LAYER])
    fresh = np.random.default_rng(1).normal(size=(300, 10))
    detector.calibrate(fresh[:, :6], features=[fresh[:, 6:]], false_alarm_rate=0.1, by="prediction")
    return to_state(detector)


def paper() -> tuple[Arrays, Info]:
    """Return the state of a detector with the leverage of the paper."""
    return deepcopy(to_state(Detector(WEIGHT, embedding_scale="paper").fit(TRAIN)))


def load(arrays: Arrays, info: Info, folder: Path) -> Detector:
    """Write a file, with the right digest, and load it."""
    save_state(folder / "made.safetensors", KIND, VERSION, arrays, info)
    return Detector.load(folder / "made.safetensors")


def skewed(vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    changed = vectors.copy()
    changed[0, 0] += 1e-6
    return changed


def one(array: np.ndarray[Any, Any], value: float) -> np.ndarray[Any, Any]:
    changed = array.copy()
    changed.flat[0] = value
    return changed


@pytest.mark.parametrize("make", [deep, paper])
def test_a_file_that_nobody_changed_loads(make: Callable[[], tuple[Arrays, Info]], tmp_path: Path) -> None:
    arrays, info = make()
    loaded = to_state(load(arrays, info, tmp_path))
    assert loaded[1] == info
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded[0][name], array)


@pytest.mark.parametrize("name", ["eigenvectors.0", "eigenvectors.1", "eigenvectors.background"])
@pytest.mark.parametrize("change", [skewed, lambda v: v * 1.001, lambda v: v * 0, np.ones_like])
def test_eigenvectors_that_are_not_orthonormal_are_refused(name: str, change: Any, tmp_path: Path) -> None:
    arrays, info = deep()
    arrays[name] = change(arrays[name])
    with pytest.raises(
        ValueError, match=rf"made\.safetensors holds no .*'{name}' is not orthonormal.*fit the detector again"
    ):
        load(arrays, info, tmp_path)


def test_bases_of_all_kinds_of_training_rows_are_orthonormal_enough() -> None:
    """Of wide, few, repeated, tiny and unequal rows."""
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(50, 300))
    for rows in (wide, np.repeat(wide[:2], 20, axis=0), wide * 1e-100, wide * np.geomspace(1, 1e-12, 300)):
        detector = Detector(rng.normal(size=(2, 300))).fit(rows)
        check_state(*to_state(detector))


@pytest.mark.parametrize("name", ["eigenvalues.0", "eigenvalues.1", "eigenvalues.background"])
def test_eigenvalues_out_of_order_or_below_0_are_refused(name: str, tmp_path: Path) -> None:
    for change in (lambda v: v[::-1], lambda v: v - v[-2], lambda v: one(v, 0.0)):
        arrays, info = deep()
        arrays[name] = change(arrays[name])
        with pytest.raises(ValueError, match="not in descending order, or below 0"):
            load(arrays, info, tmp_path)


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_another_last_layer_than_that_of_the_fit_is_refused(name: str, tmp_path: Path) -> None:
    arrays, info = deep()
    arrays[name] = one(arrays[name], 0.25)
    with pytest.raises(ValueError, match="weight and bias are not those of the last layer that was fitted"):
        load(arrays, info, tmp_path)
    load(arrays, info | {"head_digest": head_digest(arrays["weight"], arrays["bias"])}, tmp_path)


@pytest.mark.parametrize("make", [deep, paper])
def test_arrays_of_another_name_shape_or_dtype_are_refused(
    make: Callable[[], tuple[Arrays, Info]], tmp_path: Path
) -> None:
    for name, array in make()[0].items():
        changes: list[Arrays] = [
            {},
            {name: array[None]},
            {name: array[..., :-1]},
            {name: array[:0]},
            {name: array.astype(bool)},
            {name: array, f"{name}.9": array},
        ]
        for change in changes:
            arrays, info = make()
            del arrays[name]
            with pytest.raises(ValueError, match=r"made\.safetensors holds no detector that can be used: .*\w"):
                load(arrays | change, info, tmp_path)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(bad: float, tmp_path: Path) -> None:
    for name, array in deep()[0].items():
        if array.dtype.kind == "f":
            arrays, info = deep()
            arrays[name] = one(array, bad)
            with pytest.raises(ValueError, match=f"the array '{name}' holds numbers that are not finite"):
                load(arrays, info, tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("class_counts", 10**6, "the classes have .* rows in all, expected 80"),
        ("class_counts", -1, "the classes have .* rows in all, expected 80"),
        ("sample_direction_keys", 2**62, "not in the order of their keys"),
        ("sample_classes", 3, r"'sample_classes' holds .* to 3, expected 0 to 2"),
        ("sample_classes", -1, r"'sample_classes' holds -1 to"),
        ("calibration_scores", 1e6, "300 calibration scores are not ascending"),
        ("calibration_predictions", 3, r"'calibration_predictions' holds .* expected 0 to 2"),
        (f"{LEFT_OUT}.1", -1.0, "leverages below 0"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(name: str, value: Any, message: str, tmp_path: Path) -> None:
    arrays, info = deep()
    arrays[name] = one(arrays[name], value)
    with pytest.raises(ValueError, match=message):
        load(arrays, info, tmp_path)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("count", [0, -1, 81, 80.5, "80", None, True, 10**400, [80]]),
        ("left_out", [-1, 0.5, None]),
        ("norm_sum", [-1.0, "1", None, 10**400]),
        ("embedding_scale", ["long", None, 1, ["auto"]]),
        ("embedding_length", [0, -1.0, "1", None]),
        ("bias_scale", ["1", None]),
        ("label_noise", [-0.1, 1, None]),
        ("head_digest", [None, 1, "00"]),
        ("layer_names", [None, "layer", [1], [], ["a", "b"]]),
        ("model_fingerprint", [None, []]),
        ("head_notes", [None, "x", [1]]),
        ("task", [None, "regression", "multilabel"]),
        ("preparation", [[], 1, "x"]),
        ("reading", [[], {}, {"layers": [], "mask": None}, {"head": "", "layers": None, "mask": None}]),
        ("reading", [{"head": "", "layers": [1], "mask": None}, {"head": "", "layers": [], "mask": "x"}]),
        (
            "reading",
            [{"head": "", "layers": [{"name": ["x"]}], "mask": None}, {"head": "", "layers": [[]], "mask": {}}],
        ),
        ("reading", [{"head": 1, "layers": [], "mask": None}]),
        ("ridges", [None, [], {}, {"0": 1.0}, {"0": 1.0, "1": 1.0, "x": 1.0}, {"0": 0, "1": 1.0, "background": 1.0}]),
        ("threshold", [1, [], {}, "x"]),
    ],
)
def test_entries_that_make_no_sense_are_refused(name: str, values: list[Any], tmp_path: Path) -> None:
    for value in values:
        arrays, info = deep()
        with pytest.raises(ValueError, match=r"made\.safetensors holds no detector that can be used"):
            load(arrays, info | {name: value}, tmp_path)


@pytest.mark.parametrize("name", ["count", "norm_sum", "embedding_scale", "threshold"])
def test_entries_that_are_missing_are_named(name: str, tmp_path: Path) -> None:
    arrays, info = deep()
    del info[name]
    with pytest.raises(ValueError, match=f"the entry '{name}' is missing"):
        load(arrays, info, tmp_path)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("value", [None, "1", [1]]),
        ("false_alarm_rate", [0, 1, -0.5, None]),
        ("interval", [None, [], [0.1], [0.2, 0.1], ["a", "b"]]),
        ("confidence", [0, 1, None]),
        ("source", [None, 1]),
        ("by", ["class", 1]),
        ("n_classes", [-1, 2, 4, None, 0]),
        ("unknown", [1]),
    ],
)
def test_thresholds_that_make_no_sense_are_refused(name: str, values: list[Any], tmp_path: Path) -> None:
    for value in values:
        arrays, info = deep()
        info["threshold"][name] = value
        with pytest.raises(ValueError, match=r"made\.safetensors holds no detector that can be used"):
            load(arrays, info, tmp_path)


def test_a_detector_that_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    detector = Detector(WEIGHT).fit(TRAIN)
    detector._layer_names = ("none such",)
    with pytest.raises(ValueError, match="1 layers are named and 0 stored"):
        detector.save(tmp_path / "detector.safetensors")
    assert list(tmp_path.iterdir()) == []
