"""``gs://`` is read and written through pyarrow's client, with options in the URI."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pnml.io.embeddings import open_embeddings
from pnml.io.fingerprint import fingerprint_path
from pnml.io.images import open_images
from pnml.io.store import Part, PartStore

from .files import embeddings, write_folder, write_rows
from .google_store import ROOM, GoogleStore, serving_google

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = embeddings(100)
MANIFEST = {"input": "rows", "detector": "mine"}
RANGES = [(0, 6), (6, 12)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GoogleStore]:
    with serving_google(tmp_path) as store:
        yield store


def test_embeddings_are_read_from_any_row(store: GoogleStore) -> None:
    folder = write_folder(store.folder / "bucket" / "deep" / "new rows", ROWS, [30, 47, 100], group=11)
    write_rows(folder / "_old.parquet", ROWS, group=50)
    write_rows(folder.with_name("new rows 2") / "part-0.parquet", ROWS, group=50)
    samples = open_embeddings(store.uri("bucket/deep/new%20rows"))
    assert samples.count == 100
    for start in (0, 29, 31, 99):
        found = np.concatenate([rows for _, rows in samples.reader.read(start, 13)])
        np.testing.assert_array_equal(found, ROWS[start:])
    one = open_embeddings(store.uri("bucket/deep/new%20rows/part-1.parquet"))
    np.testing.assert_array_equal(next(one.chunks()).embeddings, ROWS[30:47])


def test_whole_bucket_is_read(store: GoogleStore) -> None:
    write_folder(store.folder / "bucket", ROWS, [30, 100], group=11)
    assert open_embeddings(store.uri("bucket")).count == 100


def test_images_are_read(store: GoogleStore) -> None:
    (store.folder / "bucket").mkdir()
    table = pa.table({"image": [b"one", b"two"], "id": ["a", "b"]})
    pq.write_table(table, store.folder / "bucket" / "images.parquet")
    ((ids, encoded),) = open_images(store.uri("bucket/images.parquet")).read(0, 5)
    assert (ids.tolist(), encoded) == (["a", "b"], [b"one", b"two"])


def test_fingerprint_changes_with_the_files(store: GoogleStore) -> None:
    folder = write_folder(store.folder / "bucket" / "rows", ROWS, [30, 100], group=11)
    before = fingerprint_path(store.uri("bucket/rows"))
    assert before == fingerprint_path(store.uri("bucket/rows"))
    write_rows(folder / "part-1.parquet", ROWS, group=20)
    assert before != fingerprint_path(store.uri("bucket/rows"))


def test_missing_files_and_passwords_raise(store: GoogleStore) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.parquet.* does not exist"):
        open_embeddings(store.uri("bucket/absent.parquet"))
    with pytest.raises(ValueError, match=r"gs://\.\.\.@bucket/rows holds a password"):
        open_embeddings("gs://me:hush@bucket/rows")


def test_parts_are_written_resumed_and_deleted(store: GoogleStore) -> None:
    out = store.folder / "bucket" / "out"
    parts = PartStore(store.uri("bucket/out"), "parquet")
    parts.begin(MANIFEST, RANGES)
    parts.write(0, 6, Part({"id": np.arange(5)}, ["a.png"]))
    assert sorted(path.name for path in out.iterdir()) == ["_manifest.json", "rows-000000000000-000000000006.parquet"]
    parts.begin(MANIFEST, RANGES)
    found = parts.read(0, 6)
    assert found is not None
    assert (found.columns["id"].tolist(), found.skipped) == ([0, 1, 2, 3, 4], ["a.png"])
    assert parts.read(6, 12) is None
    with pytest.raises(ValueError, match=r"belongs to another run: the detector changed"):
        parts.begin({**MANIFEST, "detector": "another"}, RANGES)
    parts.begin(MANIFEST, RANGES, restart=True)
    assert parts.read(0, 6) is None


def test_failed_upload_leaves_no_part(store: GoogleStore) -> None:
    parts = PartStore(store.uri("bucket/out"), "parquet")
    parts.begin(MANIFEST, RANGES)
    noise = np.random.default_rng(0).integers(0, 1 << 62, ROOM // 4)
    with pytest.raises(PermissionError):
        parts.write(0, len(noise), Part({"id": noise}, []))
    assert parts.read(0, len(noise)) is None
    assert [path.name for path in (store.folder / "bucket" / "out").iterdir()] == ["_manifest.json"]
