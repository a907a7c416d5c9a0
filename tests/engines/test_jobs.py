"""Jobs of workers: a range is summed or scored as the detector does it, and a range that is done is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

from pnml import Detector
from pnml.core.scorer import LARGEST_ERROR
from pnml.engines.jobs import ScoreJob, SumJob, row_to_sums
from pnml.engines.summary import Summary
from pnml.io.embeddings import open_embeddings
from pnml.io.store import PartStore

from .files import FEATURES, embeddings, fitted, write_rows
from .images import embedded, guard, write_images

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.io.embeddings import EmbeddingFile

ROWS = embeddings(100, seed=2)


@pytest.fixture
def samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddingFile:
    monkeypatch.setattr("pnml.io.embeddings.CHUNK_BYTES", 8 * FEATURES * 10)  # chunks of 10 rows
    return open_embeddings(write_rows(tmp_path / "rows.parquet", ROWS, group=25, ids=[f"n{n}" for n in range(100)]))


def test_score_job_writes_what_the_detector_computes(samples: EmbeddingFile, tmp_path: Path) -> None:
    detector = fitted()
    row = ScoreJob(samples, detector, PartStore(tmp_path / "out", "parquet"))(30, 70)
    (path,) = (tmp_path / "out").glob("*.parquet")
    table = pq.read_table(path).to_pydict()
    result = detector(ROWS[30:70]).to_table()
    assert table["id"] == [f"n{n}" for n in range(30, 70)]
    assert [name for name in table if name != "id"] == ["prediction", "probability", "regret", "p_value", "is_ood"]
    for name, column in table.items():
        if name != "id":
            np.testing.assert_allclose(column, result[name], rtol=LARGEST_ERROR)
    summary = Summary.from_json(row["summary"])
    assert (summary.rows, summary.flagged) == (40, int(result["is_ood"].sum()))
    np.testing.assert_allclose([summary.minimum, summary.maximum], [min(table["regret"]), max(table["regret"])])


def test_score_job_keeps_a_stored_part_and_replaces_a_truncated_one(samples: EmbeddingFile, tmp_path: Path) -> None:
    job = ScoreJob(samples, fitted(), PartStore(tmp_path / "out", "parquet"))
    row = job(0, 50)
    (path,) = (tmp_path / "out").glob("*.parquet")
    written = path.stat().st_mtime_ns
    assert job(0, 50) == row
    assert path.stat().st_mtime_ns == written
    path.write_bytes(path.read_bytes()[:-9])  # as an object store without renaming might keep it
    assert job(0, 50) == row
    assert pq.read_table(path).num_rows == 50


def test_range_without_a_decodable_image_keeps_the_columns(tmp_path: Path) -> None:
    model = guard()
    folder = write_images(tmp_path / "images", 30, spoiled=range(10, 20))
    samples, store = embedded(folder, model, batch=5), PartStore(tmp_path / "out", "parquet")
    _ = next(samples.chunks())  # which finds the head
    last_layer = Detector(model.head.weight, model.head.bias)
    correlation, skipped = row_to_sums(SumJob(samples, last_layer)(0, 30))
    assert (correlation.count, len(skipped)) == (20, 10)
    empty, skipped = row_to_sums(SumJob(samples, last_layer)(10, 20))
    assert (empty.count, len(skipped)) == (0, 10)
    assert empty + correlation == correlation
    last_layer.layer_names = samples.layer_names
    job = ScoreJob(samples, last_layer.merge(correlation), store, by_layer=True)
    for start in (0, 10, 20):
        job(start, start + 10)
    tables = [pq.read_table(path) for path in sorted((tmp_path / "out").iterdir())]
    assert [table.num_rows for table in tables] == [10, 0, 10]
    assert tables[0].schema.equals(tables[1].schema, check_metadata=False)
    part = store.read(10, 20)
    assert part is not None
    assert part.skipped[0] == "0010.png"
