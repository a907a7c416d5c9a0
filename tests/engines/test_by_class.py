"""Thresholds of predicted classes over files: chunks and workers decide as the detector does."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from pnml.engines import local
from pnml.engines.jobs import ScoreJob
from pnml.io.embeddings import open_embeddings
from pnml.io.store import PartStore

from .files import embeddings, head, write_rows

if TYPE_CHECKING:
    from pathlib import Path


def test_chunks_calibrate_and_workers_decide_by_class(tmp_path: Path) -> None:
    held, fresh = embeddings(300, seed=1), 2 * embeddings(100, seed=2)
    detector, expected = (head().fit(embeddings(300)) for _ in range(2))
    samples = open_embeddings(write_rows(tmp_path / "held.parquet", held, group=20))
    found, _ = local.calibrate(
        samples, detector, false_alarm_rate=0.1, leave_one_out=False, by="prediction", progress=False
    )
    threshold = expected.calibrate(held, false_alarm_rate=0.1, by="prediction")
    assert found.by == "prediction"
    assert [one.count for one in found.classes] == [one.count for one in threshold.classes]
    np.testing.assert_allclose(
        [one.value for one in found.classes], [one.value for one in threshold.classes], rtol=0.02
    )

    samples = open_embeddings(write_rows(tmp_path / "fresh.parquet", fresh, group=20))
    sent = pickle.loads(pickle.dumps(detector))  # noqa: S301 - as it is sent to a worker
    ScoreJob(samples, sent, PartStore(tmp_path / "out", "parquet"))(0, 100)
    (path,) = (tmp_path / "out").glob("*.parquet")
    table, result = pq.read_table(path).to_pydict(), detector(fresh)
    limits = np.array([one.value for one in found.classes])[table["prediction"]]
    np.testing.assert_array_equal(table["is_ood"], np.array(table["regret"]) > limits)
    np.testing.assert_array_equal(table["is_ood"], np.asarray(result.is_ood))
    np.testing.assert_allclose(table["p_value"], np.asarray(result.p_value), rtol=1e-6)
    assert 0 < sum(table["is_ood"]) < 100
