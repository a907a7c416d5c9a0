"""``gs://`` is read and written through pyarrow's own client, options in the URI and all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pnml.io.embeddings import open_embeddings
from pnml.io.fingerprint import fingerprint_path
from pnml.io.images import open_images
from pnml.io.shards import Shards

from .files import embeddings, write_folder, write_rows
from .google_store import ROOM, GoogleStore, serving_google

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = embeddings(100)
MANIFEST = {"input": "rows", "detector": "mine"}


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
        found = np.concatenate([rows for _, rows in samples.stored.read(start, 13)])
        np.testing.assert_array_equal(found, ROWS[start:])
    one = open_embeddings(store.uri("bucket/deep/new%20rows/part-1.parquet"))
    np.testing.assert_array_equal(next(one.chunks()).embeddings, ROWS[30:47])


def test_a_bucket_as_a_whole_is_read(store: GoogleStore) -> None:
    write_folder(store.folder / "bucket", ROWS, [30, 100], group=11)
    assert open_embeddings(store.uri("bucket")).count == 100


def test_images_are_read(store: GoogleStore) -> None:
    (store.folder / "bucket").mkdir()
    table = pa.table({"image": [b"one", b"two"], "id": ["a", "b"]})
    pq.write_table(table, store.folder / "bucket" / "images.parquet")
    ((ids, encoded),) = open_images(store.uri("bucket/images.parquet")).read(0, 5)
    assert (ids.tolist(), encoded) == (["a", "b"], [b"one", b"two"])


def test_stamps_tell_changes(store: GoogleStore) -> None:
    folder = write_folder(store.folder / "bucket" / "rows", ROWS, [30, 100], group=11)
    stamp = fingerprint_path(store.uri("bucket/rows"))
    assert stamp == fingerprint_path(store.uri("bucket/rows"))
    write_rows(folder / "part-1.parquet", ROWS, group=20)
    assert stamp != fingerprint_path(store.uri("bucket/rows"))


def test_what_is_not_there_is_refused(store: GoogleStore) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.parquet.* does not exist"):
        open_embeddings(store.uri("bucket/absent.parquet"))
    with pytest.raises(ValueError, match=r"gs://\.\.\.@bucket/rows holds a password"):
        open_embeddings("gs://me:hush@bucket/rows")


def test_shards_are_written_found_again_and_removed(store: GoogleStore) -> None:
    out = store.folder / "bucket" / "out"
    shards = Shards(store.uri("bucket/out"))
    shards.begin(MANIFEST)
    shards.write(0, 5, {"id": np.arange(5)}, {"rows": 5})
    assert sorted(path.name for path in out.iterdir()) == ["_manifest.json", "rows-000000000000-000000000005.parquet"]
    shards.begin(MANIFEST)
    assert shards.facts(0, 5) == {"rows": 5}
    assert shards.facts(5, 10) is None
    with pytest.raises(ValueError, match=r"holds another table: the detector has changed since"):
        shards.begin({**MANIFEST, "detector": "another"})
    shards.begin(MANIFEST, restart=True)
    assert shards.facts(0, 5) is None


def test_a_store_that_takes_no_more_keeps_no_half_shard(store: GoogleStore) -> None:
    shards = Shards(store.uri("bucket/out"))
    shards.begin(MANIFEST)
    noise = np.random.default_rng(0).integers(0, 1 << 62, ROOM // 4)
    with pytest.raises(PermissionError):
        shards.write(0, len(noise), {"id": noise}, {})
    assert shards.facts(0, len(noise)) is None
    assert [path.name for path in (store.folder / "bucket" / "out").iterdir()] == ["_manifest.json"]
