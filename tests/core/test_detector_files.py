"""Detector files: the same fit gives the same bytes, and a changed file is refused or changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from pnml import Detector
from pnml.backend.state import content_digest, save_state
from pnml.core.detector_state import KIND, VERSION, to_state
from pnml.core.last_layer import head_digest
from pnml.core.multilabel import MultiLabelDetector

if TYPE_CHECKING:
    from collections.abc import Callable

Arrays = dict[str, np.ndarray[Any, Any]]
Info = dict[str, Any]

RNG = np.random.default_rng(0)
WEIGHT, BIAS = RNG.normal(size=(3, 4)), np.array([0.1, 0.0, -0.2])
TRAIN, LAYER = RNG.normal(size=(60, 4)), RNG.normal(size=(60, 5))


def plain() -> Detector:
    detector = Detector(WEIGHT, BIAS, embedding_scale="paper").fit(TRAIN)
    detector.calibrate(RNG.normal(size=(40, 4)))
    return detector


def deep() -> Detector:
    detector = Detector(WEIGHT, BIAS).fit(TRAIN, features=[LAYER])
    detector.preparation = {"channels": "RGB"}
    detector.calibrate(
        np.random.default_rng(1).normal(size=(300, 4)),
        features=[np.random.default_rng(2).normal(size=(300, 5))],
        false_alarm_rate=0.1,
        by="prediction",
    )
    return detector


def labels() -> Detector:
    weight = np.vstack([np.zeros(4), WEIGHT])
    return MultiLabelDetector(weight).fit(TRAIN)


KINDS = [plain, deep, labels]


def saved(detector: Detector, path: Path) -> bytes:
    detector.save(path)
    return path.read_bytes()


def content_of(detector: Detector) -> tuple[str, str]:
    """Return digests of everything that a detector's scores depend on."""
    arrays, info = to_state(detector)
    return content_digest(arrays, {}), json.dumps(info) + type(detector).__name__


def refusal(path: Path, expected: tuple[str, str]) -> str | None:
    """Return why a file is refused; None where it holds the expected detector. Fail where it holds another."""
    try:
        found = Detector.load(path)
    except ValueError as error:
        return str(error)
    assert content_of(found) == expected
    return None


@pytest.mark.parametrize("make", KINDS)
def test_every_flipped_bit_is_refused_or_changes_nothing(make: Callable[[], Detector], tmp_path: Path) -> None:
    path, rng = tmp_path / "detector.safetensors", np.random.default_rng(0)
    detector = make()
    content, expected = saved(detector, path), content_of(detector)
    size = 8 + int.from_bytes(content[:8], "little")
    places = np.concatenate([np.arange(size), rng.choice(np.arange(size, len(content)), 400, replace=False)])
    messages = []
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        messages.append(refusal(path, expected))
    refused = [message for message in messages if message is not None]
    assert all(str(path) in message for message in refused)
    assert None not in messages[-400:]  # of the numbers
    assert len(refused) >= len(places) - 8  # but for spaces at the end of the header that became tabs


@pytest.mark.parametrize("make", KINDS)
def test_every_truncated_or_longer_file_is_refused(make: Callable[[], Detector], tmp_path: Path) -> None:
    path, rng = tmp_path / "detector.safetensors", np.random.default_rng(0)
    detector = make()
    content, expected = saved(detector, path), content_of(detector)
    for length in [*range(20), *rng.integers(len(content), size=100).tolist(), len(content) - 1]:
        path.write_bytes(content[:length])
        assert refusal(path, expected)
    for more in (b"\0", b"\0" * 8, content):
        path.write_bytes(content + more)
        assert refusal(path, expected)


@pytest.mark.parametrize("make", KINDS)
def test_every_permuted_or_exchanged_array_is_refused(make: Callable[[], Detector], tmp_path: Path) -> None:
    path = tmp_path / "detector.safetensors"
    detector = make()
    saved(detector, path)
    arrays, expected = load_file(path), content_of(detector)
    with safe_open(path, "np") as file:
        metadata = file.metadata()
    changes: list[Arrays] = []
    for name, array in arrays.items():
        changes += [{name: np.flip(array, axis)} for axis in range(array.ndim)]
        changes += [{name: np.roll(array, 1)}, {name: array.reshape(-1)[:-1]}, {name: array != 0}]
        changes += [{name: other, twin: array} for twin, other in arrays.items() if other.shape == array.shape]
        changes += [{f"{name}.": array}]
    tried = 0
    for change in changes:
        save_file({key: np.array(one, order="C") for key, one in (arrays | change).items()}, path, metadata)
        if content_digest(arrays | change, {}) != content_digest(arrays, {}):
            assert refusal(path, expected)
            tried += 1
    for name in arrays:
        save_file({key: array for key, array in arrays.items() if key != name}, path, metadata)
        assert refusal(path, expected)
        tried += 1
    assert tried > 5 * len(arrays)


_FIT = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
from test_detector_files import KINDS
KINDS[int(sys.argv[3])]().save(sys.argv[2])
"""


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_the_same_fit_gives_the_same_bytes(number: int, tmp_path: Path) -> None:
    """In processes that hash text differently, and when a file is loaded and saved again."""
    for seed in "12":
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        words = [sys.executable, "-c", _FIT, str(Path(__file__).parent), str(tmp_path / seed), str(number)]
        subprocess.run(words, check=True, env=environment)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    assert saved(Detector.load(tmp_path / "1"), tmp_path / "again") == (tmp_path / "1").read_bytes()


def test_a_threshold_set_from_equal_scores_is_saved_and_loaded(tmp_path: Path) -> None:
    detector = Detector(WEIGHT, BIAS).fit(TRAIN)
    detector.set_threshold(np.repeat([0.1, 0.2, 0.3], 20))
    detector.save(tmp_path / "detector.safetensors")
    assert Detector.load(tmp_path / "detector.safetensors").threshold == detector.threshold


# Files that pnml did not write, though their digest is right: refused for what their scores would be wrong by.


@pytest.fixture
def state() -> tuple[Arrays, Info]:
    """The state of a detector with a layer and a threshold by class."""
    return deepcopy(to_state(deep()))


def load(arrays: Arrays, info: Info, folder: Path) -> Detector:
    """Write a file, with the right digest, and load it."""
    save_state(folder / "made.safetensors", KIND, VERSION, arrays, info)
    return Detector.load(folder / "made.safetensors")


def one(array: np.ndarray[Any, Any], value: float) -> np.ndarray[Any, Any]:
    changed = array.copy()
    changed.flat[0] = value
    return changed


@pytest.mark.parametrize(
    "change", [lambda v: v * 1.001, lambda v: v * 0, np.ones_like, lambda v: one(v, v[0, 0] + 1e-6)]
)
def test_eigenvectors_that_are_not_orthonormal_are_refused(change: Any, tmp_path: Path) -> None:
    arrays, info = to_state(plain())
    changed = arrays | {"eigenvectors": change(arrays["eigenvectors"])}
    with pytest.raises(ValueError, match=r"made\.safetensors holds no .* is not orthonormal.*fit the detector again"):
        load(changed, info, tmp_path)
    for values in (arrays["eigenvalues"][::-1], arrays["eigenvalues"] - arrays["eigenvalues"][-2]):
        with pytest.raises(ValueError, match="not in descending order, or below 0"):
            load(arrays | {"eigenvalues": values}, info, tmp_path)


def test_bases_of_all_kinds_of_training_rows_are_orthonormal_enough(tmp_path: Path) -> None:
    """Of wide, few, repeated, tiny and unequal rows."""
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(50, 300))
    for rows in (wide, np.repeat(wide[:2], 20, axis=0), wide * 1e-100, wide * np.geomspace(1, 1e-12, 300)):
        detector = Detector(rng.normal(size=(2, 300)), embedding_scale="paper").fit(rows)
        load(*to_state(detector), tmp_path)


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_another_last_layer_than_that_of_the_fit_is_refused(
    name: str, state: tuple[Arrays, Info], tmp_path: Path
) -> None:
    arrays, info = state
    arrays[name] = one(arrays[name], 0.25)
    with pytest.raises(ValueError, match="weight and bias are not those of the last layer that was fitted"):
        load(arrays, info, tmp_path)
    load(arrays, info | {"head_digest": head_digest(arrays["weight"], arrays["bias"])}, tmp_path)


def test_arrays_of_another_name_shape_dtype_or_without_numbers_are_refused(
    state: tuple[Arrays, Info], tmp_path: Path
) -> None:
    arrays, info = state
    for name, array in arrays.items():
        changes: list[Arrays] = [
            {},
            {name: array[None]},
            {name: array[..., :-1]},
            {name: array[:0]},
            {name: array.astype(bool)},
            {name: array, f"{name}.9": array},
        ]
        if array.dtype.kind == "f":
            changes += [{name: one(array, bad)} for bad in (np.nan, np.inf)]
        others = {key: value for key, value in arrays.items() if key != name}
        for change in changes:
            with pytest.raises(ValueError, match=r"made\.safetensors holds no detector that can be used: .*\w"):
                load(others | change, info, tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("sample_keys", 2**62, "keys of the sampled rows are not in their order"),
        ("calibration_scores", 1e6, "300 calibration scores are not ascending"),
        ("calibration_predictions", 3, r"'calibration_predictions' holds .* expected 0 to 2"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(
    name: str, value: Any, message: str, state: tuple[Arrays, Info], tmp_path: Path
) -> None:
    arrays, info = state
    with pytest.raises(ValueError, match=message):
        load(arrays | {name: one(arrays[name], value)}, info, tmp_path)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("count", [0, -1, 59, 80.5, "80", None, True, 10**400, [80]]),
        ("left_out", [-1, 0.5, None]),
        ("norm_sum", [-1.0, "1", None, 10**400]),
        ("embedding_scale", ["long", None, 1, ["auto"]]),
        ("input_layer", [None, 1]),
        ("widths", [[], [4], [4, 5, 6], [5, 4], [4, 0], [4, -5], 4]),
        ("length", [0, -1.0, "1", None]),
        ("bias_scale", ["1", None]),
        ("label_noise", [-0.1, 1, None]),
        ("single", [None, 1]),
        ("head_digest", [None, 1, "00"]),
        ("layer_names", [None, "layer", [1], [], ["a", "b"]]),
        ("model_fingerprint", [None, []]),
        ("head_notes", [None, "x", [1]]),
        ("task", [None, "regression"]),
        ("preparation", [[], 1, "x"]),
        ("reading", [[], 1]),
        ("numbers", [None, [], {}, {"limit": 1.0}]),
        ("threshold", [1, [], {}, "x"]),
    ],
)
def test_entries_that_make_no_sense_are_refused(
    name: str, values: list[Any], state: tuple[Arrays, Info], tmp_path: Path
) -> None:
    arrays, info = state
    for value in values:
        with pytest.raises(ValueError, match=r"made\.safetensors holds no detector that can be used"):
            load(arrays, info | {name: value}, tmp_path)
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
def test_thresholds_that_make_no_sense_are_refused(
    name: str, values: list[Any], state: tuple[Arrays, Info], tmp_path: Path
) -> None:
    arrays, info = state
    for value in values:
        changed = info | {"threshold": info["threshold"] | {name: value}}
        with pytest.raises(ValueError, match=r"made\.safetensors holds no detector that can be used"):
            load(arrays, changed, tmp_path)


def test_a_detector_that_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    detector = Detector(WEIGHT).fit(TRAIN)
    detector._layer_names = ("none such",)
    with pytest.raises(ValueError, match="1 layers are named and 0 stored"):
        detector.save(tmp_path / "detector.safetensors")
    assert list(tmp_path.iterdir()) == []
