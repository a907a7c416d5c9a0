from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pnml.io import parquet_files
from pnml_bench.data import load

from .layouts import random_images, write_images

if TYPE_CHECKING:
    from pathlib import Path

N = 10
IMAGES = random_images(N, 32)


@pytest.fixture
def encoded(tmp_path: Path) -> list[bytes]:
    return [path.read_bytes() for path in write_images(tmp_path / "png", IMAGES)]


def write(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_reads_columns_of_bytes_and_labels(tmp_path: Path, encoded: list[bytes]) -> None:
    path = write(tmp_path / "set.parquet", file=[f"{i}" for i in range(N)], content=encoded, label=list(range(N)))
    found = load(path)
    assert np.array_equal(np.asarray(found.images), IMAGES)
    assert found.labels is not None
    assert found.labels.tolist() == list(range(N))


@pytest.mark.parametrize("large", [False, True])
def test_reads_structs_of_bytes_and_path(tmp_path: Path, encoded: list[bytes], *, large: bool) -> None:
    kind = pa.struct([("bytes", pa.large_binary() if large else pa.binary()), ("path", pa.string())])
    column = pa.array([{"bytes": content, "path": None} for content in encoded], kind)
    path = write(tmp_path / "set.parquet", img=column, fine_label=list(range(N)), coarse_label=[0] * N)
    found = load(path)
    assert np.array_equal(np.asarray(found.images), IMAGES)
    assert found.labels is not None
    assert found.labels.tolist() == list(range(N))


@pytest.mark.parametrize("limit", [1, 3, 7, 10, 11])
def test_limit_selects_rows_across_batches(
    tmp_path: Path, encoded: list[bytes], limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "_ROWS_AT_ONCE", 4)
    path = write(tmp_path / "set.parquet", image=encoded, label=list(range(N)))
    found = load(path, limit=limit)
    rows = [i * N // min(limit, N) for i in range(min(limit, N))]
    assert np.array_equal(np.asarray(found.images), IMAGES[rows])
    assert found.labels is not None
    assert found.labels.tolist() == rows


def test_file_without_images_raises_with_its_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "set.parquet", text=["a"], place=[{"path": "b"}])
    with pytest.raises(ValueError, match=r"no column of .*text \(string\), place \(struct"):
        load(path)
