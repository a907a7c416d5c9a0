"""Parts are whole or absent, and a folder is resumed for the same work only, in either file format."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

from pnml.io.store import Part, PartStore

if TYPE_CHECKING:
    from pathlib import Path

Format = Literal["npz", "parquet"]
MANIFEST = {"input": "rows", "detector": "mine"}
RANGES = [(0, 3), (3, 6), (6, 9)]
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
    store.begin(MANIFEST, RANGES)
    store.write(0, 3, PART)
    assert_holds(store, 0, 3)
    assert store.read(3, 6) is None
    assert names(tmp_path / "deep" / "out") == ["_manifest.json", f"rows-000000000000-000000000003.{file_format}"]


def test_begin_resumes_the_same_work_only(file_format: Format, tmp_path: Path) -> None:
    store = PartStore(tmp_path, file_format)
    store.begin(MANIFEST, RANGES)
    store.write(0, 3, PART)
    store.begin(MANIFEST, RANGES)
    with pytest.raises(ValueError, match=r"belongs to another run: the detector changed\..*--restart"):
        store.begin({**MANIFEST, "detector": "another"}, RANGES)
    assert_holds(store, 0, 3)
    (tmp_path / "notes.txt").write_text("mine")
    store.begin({**MANIFEST, "detector": "another"}, RANGES, restart=True)
    assert store.read(0, 3) is None
    assert names(tmp_path) == ["_manifest.json", "notes.txt"]
    store.begin({**MANIFEST, "detector": "another"}, RANGES)


def test_changed_input_is_resumed_and_keeps_parts_of_the_same_ranges(file_format: Format, tmp_path: Path) -> None:
    store = PartStore(tmp_path, file_format)
    assert not store.begin(MANIFEST, RANGES)
    for rows in RANGES:
        store.write(*rows, PART)
    changed = {**MANIFEST, "input": "shortened"}
    with pytest.raises(ValueError, match="the input and the detector changed"):
        store.begin({**changed, "detector": "another"}, RANGES)
    assert store.begin(changed, [(0, 3), (3, 5)])
    assert_holds(store, 0, 3)
    assert store.read(3, 6) is store.read(6, 9) is None
    assert not store.begin(changed, [(0, 3), (3, 5)])


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("content", ["{", "[1]", "3"])
def test_damaged_manifest_raises(content: str, restart: bool, file_format: Format, tmp_path: Path) -> None:  # noqa: FBT001
    (tmp_path / "_manifest.json").write_text(content)
    with pytest.raises(ValueError, match=r"is damaged .*: delete that folder"):
        PartStore(tmp_path, file_format).begin(MANIFEST, RANGES, restart=restart)


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ({}, "was not written by pnml score"),
        ({"kind": "icons", "version": 1}, "was not written by pnml score"),
        ({"kind": "pnml scores", "version": 2, "written_by": "pnml 9.0"}, r"written by pnml 9\.0, whose parts"),
    ],
)
def test_restart_deletes_nothing_beside_the_manifest_of_others(
    manifest: dict[str, Any], expected: str, file_format: Format, tmp_path: Path
) -> None:
    store = PartStore(tmp_path, file_format)
    store.write(0, 3, PART)
    (tmp_path / "mine.parquet").write_bytes(b"mine")
    (tmp_path / "_manifest.json").write_text(json.dumps({**manifest, "files": names(tmp_path)}))
    before = names(tmp_path)
    with pytest.raises(ValueError, match=expected):
        store.begin(MANIFEST, RANGES, restart=True)
    assert names(tmp_path) == before


def test_restart_deletes_only_parts_that_the_manifest_lists(file_format: Format, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    store = PartStore(folder, file_format)
    store.begin(MANIFEST, RANGES)
    store.write(0, 3, PART)
    store.write(9, 12, PART)  # of nobody's list
    for path in (folder / "mine.parquet", folder / "rows-mine.npz", tmp_path / "outside.npz"):
        path.write_bytes(b"mine")
    held = json.loads((folder / "_manifest.json").read_text())
    held["files"] += ["mine.parquet", "rows-mine.npz", "../outside.npz", 3]
    (folder / "_manifest.json").write_text(json.dumps(held))
    store.begin(MANIFEST, RANGES, restart=True)
    kept = ["_manifest.json", "mine.parquet", f"rows-000000000009-000000000012.{file_format}", "rows-mine.npz"]
    assert names(folder) == kept
    store.delete_all()
    assert names(folder) == kept[1:]
    assert (tmp_path / "outside.npz").exists()


def test_check_complete_notices_lost_parts_and_other_runs(file_format: Format, tmp_path: Path) -> None:
    store = PartStore(tmp_path, file_format)
    store.begin(MANIFEST, RANGES)
    store.write(0, 3, PART)
    store.check_complete(RANGES[:1])
    with pytest.raises(ValueError, match=r"has lost rows-000000000003-000000000006"):
        store.check_complete(RANGES)
    PartStore(tmp_path, file_format).begin(MANIFEST, RANGES, restart=True)
    with pytest.raises(ValueError, match="another run has begun"):
        store.check_complete([])


def test_locked_folder_is_refused_until_it_is_free(file_format: Format, tmp_path: Path) -> None:
    one, other = (PartStore(tmp_path / "out", file_format) for _ in range(2))
    with one.lock():
        with pytest.raises(ValueError, match=r"another run writes to .*out: wait until it ends"), other.lock():
            pass
        assert (tmp_path / "out").exists()
    assert not (tmp_path / "out").exists()
    with other.lock():
        other.begin(MANIFEST, RANGES)
    assert names(tmp_path / "out") == ["_manifest.json"]


@pytest.mark.parametrize("restart", [False, True])
def test_begin_refuses_a_folder_of_other_files(restart: bool, file_format: Format, tmp_path: Path) -> None:  # noqa: FBT001
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="was not written by pnml score: move it"):
        PartStore(tmp_path, file_format).begin(MANIFEST, RANGES, restart=restart)
    with pytest.raises(ValueError, match=r"thesis\.tex is a file: expected a folder"):
        PartStore(tmp_path / "thesis.tex", file_format).begin(MANIFEST, RANGES, restart=restart)
    assert names(tmp_path) == ["thesis.tex"]


def test_file_uri_is_a_local_folder(file_format: Format, tmp_path: Path) -> None:
    store = PartStore((tmp_path / "out").as_uri(), file_format)
    store.begin(MANIFEST, RANGES)
    store.write(0, 3, PART)
    assert_holds(PartStore(tmp_path / "out", file_format), 0, 3)
