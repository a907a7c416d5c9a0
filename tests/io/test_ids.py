"""Ids come out as they are in the file: large integers, bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pnml.io.embeddings import open_embeddings
from pnml.io.images import open_images
from pnml.io.score_table import read_scores
from pnml.io.scores import write_csv
from pnml.io.texts import as_texts

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.io.source import RowReader

LARGE = [2**63, 2**64 - 1, 0, 2**63 - 1]
BYTES = [b"x", "ä".encode(), b"img_2.png", b""]
TEXTS = ["x", "ä", "img_2.png", ""]
ROWS = np.random.default_rng(0).standard_normal((4, 3))


def ids_of(reader: RowReader, size: int = 3) -> list[object]:
    return [name for ids, _ in reader.read(0, size) for name in ids.tolist()]


def write(path: Path, ids: object, kind: pa.DataType | None = None) -> Path:
    if path.suffix == ".npz":
        np.savez(path, embedding=ROWS, id=np.asarray(ids))
    else:
        pq.write_table(pa.table({"embedding": [*ROWS], "id": pa.array(ids, kind)}), path)
    return path


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_ids_above_the_largest_int64_stay_what_they_are(suffix: str, tmp_path: Path) -> None:
    kind = pa.uint64() if suffix == "parquet" else None
    path = write(tmp_path / f"rows.{suffix}", np.array(LARGE, dtype=np.uint64), kind)
    assert ids_of(open_embeddings(path).reader) == LARGE


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_bytes_of_parquet_become_text(kind: pa.DataType, tmp_path: Path) -> None:
    assert ids_of(open_embeddings(write(tmp_path / "rows.parquet", BYTES, kind)).reader) == TEXTS


def test_bytes_are_ids_of_images_too(tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": pa.array([b"1", b"2"]), "id": pa.array([b"x", b"y"])}), tmp_path / "new.parquet")
    assert ids_of(open_images(tmp_path / "new.parquet")) == ["x", "y"]


@pytest.mark.parametrize("name", ["rows.parquet", "rows.npz"])
def test_bytes_that_are_no_text_are_named(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, [b"a", b"b", b"c", b"caf\xe9"])
    with pytest.raises(ValueError, match=r"row 3, counted from 0, has the id b'caf\\xe9', .* here '636166e9'"):
        ids_of(open_embeddings(path).reader)


def test_ids_that_a_spreadsheet_would_run_are_escaped_and_read_back(tmp_path: Path) -> None:
    ids = ["=1+1", "+a", "-a", "@a", "'=a", "'a", "a=1"]
    with (tmp_path / "scores.csv").open("w", newline="") as file:
        write_csv(file, [{"id": as_texts(ids), "regret": np.zeros(7)}])
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ["'=1+1", "'+a", "'-a", "'@a", "''=a", "'a", "a=1"]
    assert read_scores(tmp_path / "scores.csv")["id"].tolist() == ids
