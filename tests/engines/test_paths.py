"""Parquet in a file, in a folder of files and in an object store is read as the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest

from pnml.io.embeddings import open_embeddings
from pnml.io.fingerprint import fingerprint_path
from pnml.io.paths import path_or_uri
from pnml.io.store import Part, PartStore

from .files import embeddings, write_folder, write_rows
from .store import Store, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = embeddings(100)


@pytest.fixture
def store() -> Iterator[Store]:
    with serving() as store:
        yield store


def put(store: Store, folder: Path, bucket: str) -> str:
    for path in folder.rglob("*.parquet"):
        store.objects[f"{bucket}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    return store.uri(bucket)


@pytest.mark.parametrize("start", [0, 1, 29, 30, 31, 47, 48, 99])
@pytest.mark.parametrize("size", [1, 13, 48, 1000])
def test_folder_is_read_as_one_table_from_any_row(start: int, size: int, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "rows", ROWS, [30, 47, 48, 100], group=11)
    samples = open_embeddings(folder)
    assert samples.count == 100
    assert samples.reader.starts == (0, 11, 22, 30, 41, 47, 48, 59, 70, 81, 92)
    batches = [rows for _, rows in samples.reader.read(start, size)]
    assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)
    np.testing.assert_array_equal(np.concatenate(batches), ROWS[start:])


def test_hidden_and_other_files_of_a_folder_are_ignored(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "rows", ROWS, [60, 100], group=50)
    for name in (".part-9.parquet", "_part-9.parquet", "_old/part-9.parquet", "part-9.csv"):
        write_rows(folder / name, ROWS, group=50)
    assert open_embeddings(folder).count == 100


def test_object_store_is_read_like_a_folder(store: Store, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "rows", ROWS, [30, 100], group=11)
    samples = open_embeddings(put(store, folder, "bucket/deep/rows"))
    (chunk,) = samples.chunks()
    np.testing.assert_array_equal(chunk.embeddings, ROWS)
    np.testing.assert_array_equal(chunk.ids, np.arange(100))
    one = open_embeddings(store.uri("bucket/deep/rows/part-1.parquet"))
    np.testing.assert_array_equal(next(one.chunks()).embeddings, ROWS[30:])


def test_fingerprint_changes_with_the_files(store: Store, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "rows", ROWS, [30, 100], group=11)
    uri = put(store, folder, "bucket/rows")
    before = [fingerprint_path(folder), fingerprint_path(uri)]
    assert before == [fingerprint_path(folder), fingerprint_path(uri)]
    write_rows(folder / "part-1.parquet", ROWS, group=20)
    put(store, folder, "bucket/rows")
    assert before[0] != fingerprint_path(folder)
    assert before[1] != fingerprint_path(uri)


def test_paths_without_readable_files_raise(store: Store, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.parquet.* does not exist"):
        open_embeddings(store.uri("bucket/absent.parquet"))
    with pytest.raises(ValueError, match=r"no \.parquet files in"):
        open_embeddings(tmp_path)
    with pytest.raises(ValueError, match=r"s3://\.\.\.@bucket/rows holds a password") as caught:
        open_embeddings(path_or_uri("s3://key:hush@bucket/rows"))
    assert "hush" not in str(caught.value)
    with pytest.raises(ValueError, match="gopher://hole names no store that pyarrow reads"):
        open_embeddings(path_or_uri("gopher://hole"))


@pytest.mark.parametrize("file_format", ["npz", "parquet"])
def test_parts_are_stored_in_an_object_store(file_format: Literal["npz", "parquet"], store: Store) -> None:
    manifest, ranges = {"input": "rows"}, [(0, 5), (5, 10)]
    parts = PartStore(store.uri("bucket/out"), file_format)
    parts.begin(manifest, ranges)
    parts.write(0, 5, Part({"id": np.arange(5)}, []))
    name = f"bucket/out/rows-000000000000-000000000005.{file_format}"
    assert set(store.objects) == {"bucket/out/_manifest.json", name}
    parts.begin(manifest, ranges)
    assert parts.read(5, 10) is None
    part = parts.read(0, 5)
    assert part is not None
    assert part.columns["id"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match=r"out/_manifest\.json.* is a file: expected a folder"):
        PartStore(store.uri("bucket/out/_manifest.json"), file_format).begin(manifest, ranges)
    parts.begin(manifest, ranges, restart=True)
    assert parts.read(0, 5) is None
