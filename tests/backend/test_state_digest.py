"""State is read back as it was written or not at all, and the same state gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from pnml.backend.state import content_digest, load_state, save_state

if TYPE_CHECKING:
    from pathlib import Path

ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "wide": np.arange(6.0).reshape(2, 3),
    "narrow": np.array([1, 2, 3], dtype=np.int8),
    "flags": np.array([True, False]),
    "none": np.zeros((0, 4)),
    "one": np.array(2.5, dtype=np.float32),
    "big-endian": np.array([1.0, -2.0], dtype=">f8"),
    "strided": np.arange(10)[::3],
}
INFO = {"count": 3, "name": "né \udc80", "nothing": None}

_SAVE = """
import sys, numpy as np
from pnml.backend.state import save_state
save_state(sys.argv[1], "pnml.test", 1, {"b": np.eye(2), "a": np.arange(3)}, {"x": 1})
"""


def saved(path: Path) -> Path:
    save_state(path, "pnml.test", 1, ARRAYS, INFO)
    return path


def rewritten(path: Path, changes: dict[str, str], *, without: str = "") -> Path:
    """Write the arrays of a file again, with other metadata."""
    with safe_open(path, "np") as file:
        metadata = {key: value for key, value in file.metadata().items() if key != without}
    save_file(load_file(path), path, metadata | changes)
    return path


def test_every_array_comes_back_by_the_reader_of_safetensors(tmp_path: Path) -> None:
    found = load_file(saved(tmp_path / "state"))
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
        assert (found[name].dtype, found[name].shape) == (array.dtype.newbyteorder("="), array.shape)
    assert load_state(tmp_path / "state", "pnml.test", 1)[1] == INFO


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    """Also where arrays come in another order, and in processes that hash text differently."""
    backwards = dict(reversed(ARRAYS.items()))
    save_state(tmp_path / "backwards", "pnml.test", 1, backwards, INFO)
    assert saved(tmp_path / "state").read_bytes() == (tmp_path / "backwards").read_bytes()
    for seed in "12":
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", _SAVE, tmp_path / seed], check=True, env=environment)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_every_changed_byte_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    path = saved(tmp_path / "state")
    content, rng, refused = path.read_bytes(), np.random.default_rng(0), list[str]()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        try:
            arrays, info = load_state(path, "pnml.test", 1)
        except ValueError as error:
            refused.append(str(error))
        else:
            assert info == INFO
            assert content_digest(arrays, {}) == content_digest(ARRAYS, {})
    assert all(str(path) in message for message in refused)
    assert len(refused) > 0.95 * len(content)  # but for spaces that became tabs


def test_an_array_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    for changes in ({"wide": ARRAYS["wide"][::-1]}, {"wide": ARRAYS["wide"].T}, {"narrow": ARRAYS["flags"]}):
        path = saved(tmp_path / "state")
        with safe_open(path, "np") as file:
            metadata = file.metadata()
        save_file({name: np.array(array, order="C") for name, array in (ARRAYS | changes).items()}, path, metadata)
        with pytest.raises(ValueError, match="does not have the digest that was stored with it: take a copy"):
            load_state(path, "pnml.test", 1)


@pytest.mark.parametrize("changes", [{"info": "{}"}, {"written_by": "pnml 0"}, {"more": "text"}])
def test_other_metadata_is_refused(tmp_path: Path, changes: dict[str, str]) -> None:
    path = rewritten(saved(tmp_path / "state"), changes)
    with pytest.raises(ValueError, match="state is damaged, its content does not have the digest"):
        load_state(path, "pnml.test", 1)


def test_a_digest_must_not_be_missing(tmp_path: Path) -> None:
    path = rewritten(saved(tmp_path / "state"), {}, without="digest")
    with pytest.raises(ValueError, match="state is damaged, it lacks the digest of its content"):
        load_state(path, "pnml.test", 1)


def test_the_digest_is_that_of_what_the_documentation_says() -> None:
    metadata = {"b": "2", "a": "1"}
    expected = hashlib.sha256(b'[[["x", "<f8", [2]]], {"a": "1", "b": "2"}]' + np.array([1.0, 2.0]).tobytes())
    assert content_digest({"x": np.array([1.0, 2.0])}, metadata) == expected.hexdigest()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_neither_written_nor_read(tmp_path: Path, bad: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        save_state(tmp_path / "state", "pnml.test", 1, ARRAYS, {"value": bad})
    assert list(tmp_path.iterdir()) == []
    metadata = {"kind": "pnml.test", "version": "1", "written_by": "?", "info": json.dumps({"value": bad})}
    save_file({"a": np.zeros(1)}, tmp_path / "state", metadata)
    with pytest.raises(ValueError, match=r"state is damaged, its metadata cannot be read \(it holds"):
        load_state(tmp_path / "state", "pnml.test", 1)


@pytest.mark.parametrize("info", ["[" * 100_000, "3", "[1]", '"text"', "null"])
def test_odd_metadata_is_refused_by_the_name_of_the_file(tmp_path: Path, info: str) -> None:
    metadata = {"kind": "pnml.test", "version": "1", "written_by": "?", "info": info}
    save_file({"a": np.zeros(1)}, tmp_path / "state", metadata)
    with pytest.raises(ValueError, match="state is damaged, its metadata cannot be read"):
        load_state(tmp_path / "state", "pnml.test", 1)


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "F4"])
def test_numbers_that_numpy_does_not_know_are_refused(tmp_path: Path, dtype: str) -> None:
    """Some are known once other packages are imported; then the file has no digest of theirs."""
    size = 8 if dtype == "BF16" else 4
    metadata = {"kind": "pnml.test", "version": "1", "written_by": "?", "info": "{}", "digest": "none"}
    header = {"__metadata__": metadata, "a": {"dtype": dtype, "shape": [4], "data_offsets": [0, size]}}
    text = json.dumps(header).encode()
    (tmp_path / "state").write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
    with pytest.raises(ValueError, match=r"state is (not a whole safetensors file|damaged)"):
        load_state(tmp_path / "state", "pnml.test", 1)


def test_what_is_no_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ValueError, match=r"is no file: expected a pnml\.test that pnml wrote"):
            load_state(path, "pnml.test", 1)
