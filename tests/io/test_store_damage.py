"""Whatever happened to a part or a manifest, rows are scored again or the folder is named; no part is half believed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

from pnml.io.store import Part, PartStore

if TYPE_CHECKING:
    from pathlib import Path

Format = Literal["npz", "parquet"]
WORK = {"input": "rows", "detector": "mine"}
PART = Part({"id": np.array(["a", "b"]), "regret": np.array([0.5, 0.25])}, ["c.png"], "digest of rows")


def store_of(folder: Path, file_format: Format) -> tuple[PartStore, Path]:
    store = PartStore(folder, file_format)
    store.begin(WORK, [(0, 3)])
    store.write(0, 3, PART)
    return store, folder / f"rows-000000000000-000000000003.{file_format}"


@pytest.mark.parametrize("file_format", ["npz", "parquet"])
def test_a_part_cut_off_anywhere_is_read_as_absent(file_format: Format, tmp_path: Path) -> None:
    store, path = store_of(tmp_path, file_format)
    content = path.read_bytes()
    for size in range(0, len(content), 11):
        path.write_bytes(content[:size])
        assert store.read(0, 3) is None


@pytest.mark.parametrize("new", [b"\xff" * 8, bytes(8), b"\x7f" + b"\xff" * 7])
def test_a_part_of_which_bytes_were_lost_is_the_same_or_absent(new: bytes, tmp_path: Path) -> None:
    store, path = store_of(tmp_path, "npz")
    content = path.read_bytes()
    for place in range(0, len(content), 5):
        path.write_bytes(content[:place] + new + content[place + len(new) :])
        part = store.read(0, 3)
        if part is not None:
            assert part.columns["regret"].tolist() == [0.5, 0.25]
            assert (part.skipped, part.digest) == (PART.skipped, PART.digest)


@pytest.mark.parametrize(
    "columns", [{}, {"regret": np.zeros(2), "id": np.zeros(1)}, {"id": np.zeros(1), "regret": np.zeros(2)}]
)
def test_a_part_whose_columns_differ_in_length_covers_nothing(columns: dict[str, Any]) -> None:
    assert not Part(columns, ["c.png"]).covers(0, 3)


@pytest.mark.parametrize("changed", [{"files": 7}, {"files": None}, {"work": "rows"}])
def test_a_manifest_of_other_types_is_refused_by_name(changed: dict[str, Any], tmp_path: Path) -> None:
    store, _ = store_of(tmp_path, "npz")
    manifest = tmp_path / "_manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **changed}))
    with pytest.raises(ValueError, match=rf"_manifest\.json in {tmp_path} is damaged \(.*\): delete that folder"):
        store.begin(WORK, [(0, 3)])


def test_a_manifest_of_endless_lists_is_refused_by_name(tmp_path: Path) -> None:
    store, _ = store_of(tmp_path, "npz")
    (tmp_path / "_manifest.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"_manifest\.json in .* is damaged .*: delete that folder"):
        store.begin(WORK, [(0, 3)])
