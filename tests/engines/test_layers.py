"""Earlier layers in the local engine: chunk by chunk, the numbers of one pass over all rows; names travel along."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from pnml import Detector
from pnml.core.calibration_scores import TrainingRowsWarning
from pnml.engines import local
from pnml.engines.jobs import ScoreJob, SumJob, add_tables, row_to_sums
from pnml.io.embeddings import open_embeddings
from pnml.io.store import PartStore

from .files import FEATURES, assert_same_statistic, embeddings, head, layer_features, write_layers
from .images import embedded, guard, write_images

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.io.embeddings import EmbeddingFile

ROWS = embeddings(300, seed=4)
LAYERS = layer_features(300)


@pytest.fixture
def samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddingFile:
    monkeypatch.setattr("pnml.io.embeddings.CHUNK_BYTES", 8 * (FEATURES + 5 + 3) * 10)  # chunks of 10 rows
    return open_embeddings(write_layers(tmp_path / "rows.parquet", ROWS, LAYERS, group=25))


def fitted_at_once() -> Detector:
    detector = head()
    detector.layer_names = tuple(LAYERS)
    return detector.partial_fit(ROWS, features=[*LAYERS.values()])


def test_fit_sums_every_layer(samples: EmbeddingFile) -> None:
    detector, skipped = local.fit(samples, head(), progress=False)
    assert skipped == ()
    assert detector.layer_names == ("stem", "block.1")
    assert_same_statistic(detector.correlation, fitted_at_once().correlation)


@pytest.mark.parametrize("scale", ["paper", "natural"])
def test_fit_without_layers_is_of_embeddings_alone(scale: Any, samples: EmbeddingFile) -> None:
    last_layer = Detector(head().weight, head().bias, embedding_scale=scale)
    detector, _ = local.fit(open_embeddings(samples.path, layers=()), last_layer, progress=False)
    expected = last_layer.fit(ROWS)
    np.testing.assert_allclose(detector.score(ROWS[:50]), expected.score(ROWS[:50]), rtol=1e-5)
    with pytest.raises(ValueError, match="features of earlier layers need embedding_scale="):
        local.fit(samples, Detector(head().weight, embedding_scale=scale), progress=False)


def test_calibrate_and_score_pass_the_features(samples: EmbeddingFile, tmp_path: Path) -> None:
    detector, _ = local.fit(samples, head(), progress=False)
    whole = fitted_at_once()
    for one_out in (False, True):
        with nullcontext() if one_out else pytest.warns(TrainingRowsWarning):
            found, _ = local.calibrate(samples, detector, false_alarm_rate=0.1, leave_one_out=one_out, progress=False)
        scores = whole.score(ROWS, features=[*LAYERS.values()], leave_one_out=one_out)
        expected = whole.set_threshold(scores, false_alarm_rate=0.1)
        assert found.value == pytest.approx(expected.value, rel=0.02)  # in float32, where a 1 % error is allowed
    local.score(samples, detector, tmp_path / "scores.parquet", by_layer=True, progress=False)
    table = pq.read_table(tmp_path / "scores.parquet").to_pydict()
    result = whole(ROWS, features=[*LAYERS.values()])
    np.testing.assert_allclose(table["regret"], result.regret, rtol=0.02)
    for number, name in enumerate(["embedding", *LAYERS]):
        np.testing.assert_allclose(
            table[f"leverage.{name}"], np.asarray(result.leverage_by_layer)[:, number], rtol=0.02, atol=1e-3
        )
    assert table["strangest_layer"] == [
        ["embedding", *whole.watched_names][number] for number in result.strangest_layer
    ]


def test_sums_of_ranges_add_up_to_those_of_all_rows(samples: EmbeddingFile) -> None:
    from pyarrow import Table

    job = SumJob(samples, head())
    tables = [Table.from_pylist([job(start, start + 100)]) for start in (0, 100, 200)]
    (row,) = add_tables(*tables).to_pylist()
    total, _ = row_to_sums(row)
    whole, _ = row_to_sums(job(0, 300))
    assert_same_statistic(total, whole)


def test_images_carry_what_the_layer_puts_out(tmp_path: Path) -> None:
    samples = embedded(write_images(tmp_path / "images", 30), guard(), batch=8)
    assert not samples.layer_names
    chunks = list(samples.chunks())
    assert samples.layer_names == ("1",)
    with torch.no_grad():
        for chunk in chunks:
            torch.testing.assert_close(torch.tanh(chunk.features[0]), chunk.embeddings)  # the layer before tanh
    detector, _ = local.fit(samples, samples.guard, progress=False)
    assert detector.layer_names == ("1",)
    assert detector.feature_widths == (FEATURES,)
    ScoreJob(samples, detector, PartStore(tmp_path / "out", "parquet"))(0, 30)
    (path,) = (tmp_path / "out").glob("*.parquet")
    assert set(pq.read_table(path)["strangest_layer"].to_pylist()) <= {"embedding", "1", "lengths"}
