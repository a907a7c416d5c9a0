"""Parquet in a file, in a folder of files and in a store reads as the same rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pnml.io.embeddings import open_embeddings
from pnml.io.fingerprint import fingerprint_path
from pnml.io.images import open_images
from pnml.io.paths import located, path_or_uri

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
def test_a_folder_reads_as_one_table_from_any_row(start: int, size: int, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "rows", ROWS, [30, 47, 48, 100], group=11)
    samples = open_embeddings(folder)
    assert samples.count == 100
    assert samples.starts == (0, 11, 22, 30, 41, 47, 48, 59, 70, 81, 92)
    pieces = [rows for _, rows in samples.stored.read(start, size)]
    assert [len(piece) for piece in pieces[:-1]] == [size] * (len(pieces) - 1)
    np.testing.assert_array_equal(np.concatenate(pieces), ROWS[start:])


def test_other_files_of_a_folder_are_passed_over(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "rows", ROWS, [60, 100], group=50)
    for name in (".part-9.parquet", "_part-9.parquet", "_old/part-9.parquet", "part-9.csv"):
        write_rows(folder / name, ROWS, group=50)
    assert open_embeddings(folder).count == 100


def test_a_store_reads_like_a_folder(store: Store, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "rows", ROWS, [30, 100], group=11)
    samples = open_embeddings(put(store, folder, "bucket/deep/rows"))
    (chunk,) = samples.chunks()
    np.testing.assert_array_equal(chunk.embeddings, ROWS)
    np.testing.assert_array_equal(chunk.ids, np.arange(100))
    one = open_embeddings(store.uri("bucket/deep/rows/part-1.parquet"))
    np.testing.assert_array_equal(next(one.chunks()).embeddings, ROWS[30:])


def test_images_in_a_store_are_read(store: Store, tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": [b"one", b"two"], "id": ["a", "b"]}), tmp_path / "images.parquet")
    images = open_images(put(store, tmp_path, "bucket/images"))
    ((ids, encoded),) = images.read(0, 5)
    assert (ids.tolist(), encoded) == (["a", "b"], [b"one", b"two"])


def test_stamps_tell_changes(store: Store, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "rows", ROWS, [30, 100], group=11)
    uri = put(store, folder, "bucket/rows")
    stamps = [fingerprint_path(folder), fingerprint_path(uri)]
    assert stamps == [fingerprint_path(folder), fingerprint_path(uri)]
    write_rows(folder / "part-1.parquet", ROWS, group=20)
    put(store, folder, "bucket/rows")
    assert stamps[0] != fingerprint_path(folder)
    assert stamps[1] != fingerprint_path(uri)


def test_places_that_hold_nothing_to_read_are_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.parquet.* does not exist"):
        open_embeddings(store.uri("bucket/absent.parquet"))
    with pytest.raises(ValueError, match=r"no \.parquet files in"):
        open_embeddings(tmp_path)
    with pytest.raises(ValueError, match=r"s3://\.\.\.@bucket/rows holds a password") as caught:
        open_embeddings(path_or_uri("s3://key:hush@bucket/rows"))
    assert "hush" not in str(caught.value)
    with pytest.raises(ValueError, match="gopher://hole names no store that pyarrow reads"):
        open_embeddings(path_or_uri("gopher://hole"))


def test_files_of_other_columns_are_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.parquet", ROWS, group=10)
    write_rows(tmp_path / "b.parquet", ROWS.astype(np.float64), group=10)
    with pytest.raises(ValueError, match=r"the columns of .*b\.parquet are not those of .*a\.parquet"):
        open_embeddings(tmp_path)


def test_half_a_file_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, ROWS, [30, 100], group=11)
    (tmp_path / "part-1.parquet").write_bytes((tmp_path / "part-1.parquet").read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"part-1\.parquet is no whole parquet file"):
        open_embeddings(tmp_path)


@pytest.mark.parametrize(
    ("place", "asked"),
    [
        ("gs://bucket/rows", "gs://bucket/rows?retry_limit_seconds=60"),
        ("gcs://bucket/rows?scheme=http", "gcs://bucket/rows?scheme=http&retry_limit_seconds=60"),
        ("gs://bucket/rows?retry_limit_seconds=5", "gs://bucket/rows?retry_limit_seconds=5"),
        ("s3://bucket/rows", "s3://bucket/rows"),
    ],
)
def test_a_store_that_does_not_answer_is_not_waited_for_in_silence(
    place: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def from_uri(uri: str) -> tuple[str, str]:
        return uri, "bucket/rows/"

    stores = SimpleNamespace(FileSystem=SimpleNamespace(from_uri=from_uri))
    monkeypatch.setattr("pnml.io.paths.require", lambda *_, **__: stores)
    assert located(place) == (asked, "bucket/rows")
