"""Detector files: the same fit gives the same bytes, and a changed file is refused or changes nothing."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from pnml import Detector
from pnml.backend.state import content_digest
from pnml.core.detector_state import to_state
from pnml.core.multilabel import MultiLabelDetector

if TYPE_CHECKING:
    from collections.abc import Callable

Arrays = dict[str, np.ndarray[Any, Any]]

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


@pytest.mark.parametrize("make", KINDS)
def test_a_loaded_detector_puts_no_matrix_together_until_rows_are_added(
    make: Callable[[], Detector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector, path = make(), tmp_path / "detector.safetensors"
    detector.save(path)
    features = [LAYER] if detector.feature_widths else None
    with monkeypatch.context() as patch:
        for module in ("scatter", "subspace", "detector_state"):
            patch.setattr(f"pnml.core.{module}.recompose", lambda *_: pytest.fail("a matrix was put together"))
        loaded = Detector.load(path)
        np.testing.assert_array_equal(
            loaded.score(TRAIN, features=features), detector.score(TRAIN, features=features), strict=True
        )
        loaded.save(tmp_path / "again.safetensors")
    loaded = Detector.load(path)
    copied = pickle.loads(pickle.dumps(loaded))  # noqa: S301 - of what this process has just made
    for one in (loaded, copied):
        one.partial_fit(TRAIN[:20], features=[LAYER[:20]] if features else None)
    detector.partial_fit(TRAIN[:20], features=[LAYER[:20]] if features else None)
    for one in (loaded, copied):
        for number in range(1 + len(detector.feature_widths)):
            expected = detector.correlation.layer_matrix(number)
            tolerance = 64 * np.finfo(np.float64).eps * np.abs(expected).max()
            np.testing.assert_allclose(one.correlation.layer_matrix(number), expected, rtol=0, atol=tolerance)
