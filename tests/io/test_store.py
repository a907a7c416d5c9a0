"""Parts are whole or absent, and a folder is resumed for the same work only, in either file format."""

from __future__ import annotations

import errno
import json
import logging
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

from pnml.io.store import Part, PartStore

if TYPE_CHECKING:
    from pathlib import Path

Format = Literal["npz", "parquet"]
MANIFEST = {"input": "rows", "detector": "mine"}
PART = Part({"id": np.array(["a", "b"]), "regret": np.array([0.5, 0.25]), "is_ood": np.array([True, False])}, ["c.png"])

pytestmark = pytest.mark.parametrize("file_format", ["npz", "parquet"])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_holds(store: PartStore, start: int, stop: int) -> None:
    part = store.read(start, stop)
    assert part is not None
    assert part.skipped == PART.skipped
    assert {name: column.tolist() for name, column in part.columns.items()} == {
        name: column.tolist() for name, column in PART.columns.items()
    }


def test_read_returns_what_was_written(file_format: Format, tmp_path: Path) -> None:
    store = PartStore(tmp_path / "deep" / "out", file_format)
    store.begin(MANIFEST)
    store.write(0, 3, PART)
    assert_holds(store, 0, 3)
    assert store.read(3, 6) is None
    assert names(tmp_path / "deep" / "out") == ["_manifest.json", f"rows-000000000000-000000000003.{file_format}"]


def test_begin_resumes_the_same_work_only(file_format: Format, tmp_path: Path) -> None:
    store = PartStore(tmp_path, file_format)
    store.begin(MANIFEST)
    store.write(0, 3, PART)
    store.begin(MANIFEST)
    with pytest.raises(ValueError, match=r"belongs to another run: the detector changed\..*--restart"):
        store.begin({**MANIFEST, "detector": "another"})
    assert_holds(store, 0, 3)
    (tmp_path / "notes.txt").write_text("mine")
    store.begin({**MANIFEST, "detector": "another"}, restart=True)
    assert store.read(0, 3) is None
    assert names(tmp_path) == ["_manifest.json", "notes.txt"]
    store.begin({**MANIFEST, "detector": "another"})


def test_changed_input_keeps_parts_of_the_same_digest(file_format: Format, tmp_path: Path) -> None:
    store = PartStore(tmp_path, file_format)
    assert not store.begin(MANIFEST)
    for start, digest in ((0, "same"), (3, "old"), (6, "")):
        store.write(start, start + 3, PART._replace(digest=digest))
    assert not store.begin(MANIFEST, digest=lambda start, stop: "unused")
    changed = {**MANIFEST, "input": "repaired"}
    with pytest.raises(ValueError, match="the input changed"):
        store.begin(changed)
    with pytest.raises(ValueError, match="the input and the detector changed"):
        store.begin({**changed, "detector": "another"}, digest=lambda start, stop: "same")
    assert store.begin(changed, digest=lambda start, stop: "same")
    assert_holds(store, 0, 3)
    assert store.read(3, 6) is store.read(6, 9) is None
    assert not store.begin(changed)


@pytest.mark.parametrize("content", ["{", "[1]", "3"])
def test_damaged_manifest_raises_until_restart(content: str, file_format: Format, tmp_path: Path) -> None:
    store = PartStore(tmp_path, file_format)
    (tmp_path / "_manifest.json").write_text(content)
    with pytest.raises(ValueError, match=r"is damaged .*start over with --restart"):
        store.begin(MANIFEST)
    store.begin(MANIFEST, restart=True)
    store.begin(MANIFEST)


@pytest.mark.parametrize("restart", [False, True])
def test_begin_refuses_a_folder_of_other_files(restart: bool, file_format: Format, tmp_path: Path) -> None:  # noqa: FBT001
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="was not written by pnml score: move it"):
        PartStore(tmp_path, file_format).begin(MANIFEST, restart=restart)
    with pytest.raises(ValueError, match=r"thesis\.tex is a file: expected a folder"):
        PartStore(tmp_path / "thesis.tex", file_format).begin(MANIFEST, restart=restart)
    assert names(tmp_path) == ["thesis.tex"]


def test_begin_ignores_a_manifest_that_was_not_finished(file_format: Format, tmp_path: Path) -> None:
    (tmp_path / "._manifest.json.1.partial").write_text("{")
    PartStore(tmp_path, file_format).begin(MANIFEST)
    assert json.loads((tmp_path / "_manifest.json").read_text()) == MANIFEST


@pytest.mark.parametrize("kept", [0, 10, 300])
def test_truncated_part_is_logged_and_read_as_absent(
    kept: int, file_format: Format, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = PartStore(tmp_path, file_format)
    store.write(0, 3, PART)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:kept])
    with caplog.at_level(logging.WARNING, "pnml"):
        assert store.read(0, 3) is None
    assert f"{path.name} in {tmp_path} is damaged" in caplog.text


def test_full_disk_leaves_no_partial_file(file_format: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PartStore(tmp_path, file_format)
    store.begin(MANIFEST)

    def write_bytes(path: Path, data: Any) -> None:
        with path.open("wb") as file:
            file.write(memoryview(data)[:7])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", write_bytes)
    with pytest.raises(OSError, match="No space left"):
        store.write(0, 3, PART)
    assert names(tmp_path) == ["_manifest.json"]


def test_delete_leftovers_deletes_partial_files_only(file_format: Format, tmp_path: Path) -> None:
    store = PartStore(tmp_path, file_format)
    store.begin(MANIFEST)
    store.write(0, 3, PART)
    before = names(tmp_path)
    (tmp_path / f".rows-000000000003-000000000006.{file_format}.123.partial").write_bytes(b"half")
    store.delete_leftovers()
    assert names(tmp_path) == before
    store.delete_all()
    assert names(tmp_path) == []


def test_file_uri_is_a_local_folder(file_format: Format, tmp_path: Path) -> None:
    store = PartStore((tmp_path / "out").as_uri(), file_format)
    store.begin(MANIFEST)
    store.write(0, 3, PART)
    assert_holds(PartStore(tmp_path / "out", file_format), 0, 3)
