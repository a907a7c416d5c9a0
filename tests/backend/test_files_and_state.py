"""Files that are whole or not there, and state that is read only if it is what it should be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pnml._version import __version__
from pnml.backend.files import atomic_path
from pnml.backend.state import load_state, save_state

if TYPE_CHECKING:
    from pathlib import Path

ARRAYS = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([1], dtype=np.int32)}
INFO = {"count": 3, "name": "né", "nothing": None}


def test_a_finished_file_takes_the_name(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with atomic_path(target) as partial:
        assert partial.parent == tmp_path
        partial.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_an_unfinished_file_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")

    def fail() -> None:
        with atomic_path(str(target)) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_state_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "state"
    save_state(path, "pnml.test", 1, ARRAYS, INFO)
    arrays, info = load_state(str(path), "pnml.test", 1)
    assert info == INFO
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype


def test_a_transposed_array_comes_back(tmp_path: Path) -> None:
    save_state(tmp_path / "state", "pnml.test", 1, {"a": ARRAYS["a"].T}, {})
    np.testing.assert_array_equal(load_state(tmp_path / "state", "pnml.test", 1)[0]["a"], ARRAYS["a"].T)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        load_state(tmp_path / "absent", "pnml.test", 1)


def test_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    save_state(tmp_path / "state", "pnml.other", 1, ARRAYS, INFO)
    with pytest.raises(ValueError, match=r"state holds no pnml\.test but pnml\.other"):
        load_state(tmp_path / "state", "pnml.test", 1)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_a_file_of_another_program_is_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    save_file(ARRAYS, tmp_path / "model", metadata)
    with pytest.raises(ValueError, match=r"model holds no pnml\.test but a file that pnml did not write"):
        load_state(tmp_path / "model", "pnml.test", 1)


@pytest.mark.parametrize("reads", [6, 8])
def test_another_format_is_refused_in_one_line(tmp_path: Path, reads: int) -> None:
    save_state(tmp_path / "state", "pnml.test", 7, ARRAYS, INFO)
    written = rf"pnml\.test format 7, written by pnml {__version__}; .* reads format {reads}: make it again"
    with pytest.raises(ValueError, match=written):
        load_state(tmp_path / "state", "pnml.test", reads)


@pytest.mark.parametrize("size", [0, 4, 100, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "state"
    save_state(path, "pnml.test", 1, ARRAYS, INFO)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match="state is not a whole safetensors file"):
        load_state(path, "pnml.test", 1)


@pytest.mark.parametrize("content", [b"plain text, and rather more than eight bytes of it", b"\x80\x04K\x01.", b"{}"])
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(ValueError, match="state is not a whole safetensors file"):
        load_state(tmp_path / "state", "pnml.test", 1)


@pytest.mark.parametrize(
    "metadata",
    [
        {"kind": "pnml.test"},
        {"kind": "pnml.test", "version": "one", "written_by": "?", "info": "{}"},
        {"kind": "pnml.test", "version": "1", "written_by": "?", "info": "{"},
    ],
)
def test_damaged_metadata_is_refused_by_the_name_of_the_file(tmp_path: Path, metadata: dict[str, str]) -> None:
    save_file(ARRAYS, tmp_path / "state", metadata)
    with pytest.raises(ValueError, match="state"):
        load_state(tmp_path / "state", "pnml.test", 1)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    unwritable: dict[str, Any] = {"info": object()}
    with pytest.raises(TypeError):
        save_state(tmp_path / "state", "pnml.test", 1, ARRAYS, unwritable)
    assert list(tmp_path.iterdir()) == []


def test_info_is_plain_json(tmp_path: Path) -> None:
    save_state(tmp_path / "state", "pnml.test", 1, {"a": np.zeros(1)}, INFO)
    header = (tmp_path / "state").read_bytes()
    size = int.from_bytes(header[:8], "little")
    metadata = json.loads(header[8 : 8 + size])["__metadata__"]
    assert json.loads(metadata["info"]) == INFO
    assert metadata["written_by"] == f"pnml {__version__}"
