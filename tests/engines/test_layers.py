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
from pnml.engines.jobs import ScoreJob, SumJob, row_to_sums
from pnml.engines.ranges import worker_ranges
from pnml.engines.tree import add_tables
from pnml.io.embeddings import open_embeddings
from pnml.io.store import PartStore

from .files import CLASSES, FEATURES, embeddings, head, layer_features, write_layers
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


def unit(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    wide = rows.astype(np.float64)
    return np.asarray(wide / np.linalg.norm(wide, axis=1, keepdims=True))


def test_fit_sums_every_layer_by_predicted_class(samples: EmbeddingFile) -> None:
    detector, skipped = local.fit(samples, head(), progress=False)
    assert skipped == ()
    assert detector.layer_names == ("stem", "block.1")
    statistic = detector.correlation
    assert (statistic.count, statistic.widths) == (300, (FEATURES, 5, 3))
    classes = (ROWS.astype(np.float64) @ head().weight.T + head().bias).argmax(axis=1)
    layers = [unit(rows) for rows in (ROWS, *LAYERS.values())]
    for number, rows in enumerate(layers):
        np.testing.assert_allclose(statistic.layer_matrix(number), rows.T @ rows, rtol=1e-6, atol=1e-6)
    sums = np.stack([np.hstack(layers)[classes == number].sum(axis=0) for number in range(CLASSES)])
    np.testing.assert_array_equal(statistic.class_counts, np.bincount(classes, minlength=CLASSES))
    np.testing.assert_allclose(statistic.class_sums, sums, rtol=1e-5, atol=1e-5)


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
    whole = head()
    whole.layer_names = tuple(LAYERS)
    whole.partial_fit(ROWS, features=[*LAYERS.values()])
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
            table[f"leverage.{name}"], np.asarray(result.leverage_by_layer)[:, number], rtol=1e-3, atol=1e-5
        )
    assert table["strangest_layer"] == [["embedding", *LAYERS][number] for number in result.strangest_layer]


def test_stranger_in_one_layer_is_given_away_by_it(tmp_path: Path, samples: EmbeddingFile) -> None:
    detector, _ = local.fit(samples, head(), progress=False)
    strange = {name: rows[:20].copy() for name, rows in LAYERS.items()}
    strange["stem"] = np.random.default_rng(1).normal(size=strange["stem"].shape).astype(np.float32)
    strange["stem"] = -np.abs(strange["stem"]) - 5 * np.eye(5, dtype=np.float32)[0]
    new = open_embeddings(write_layers(tmp_path / "new.parquet", ROWS[:20], strange, group=20))
    local.score(new, detector, tmp_path / "scores.csv", progress=False)
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert lines[0].endswith(",regret,strangest_layer")
    assert [line.rsplit(",", 1)[1] for line in lines[1:]] == ["stem"] * 20


def test_layer_with_the_name_of_the_embedding_is_told_apart(tmp_path: Path) -> None:
    layers = {"embedding": LAYERS["stem"], "encoder": LAYERS["block.1"]}
    samples = open_embeddings(write_layers(tmp_path / "rows.parquet", ROWS, layers, group=50))
    detector, _ = local.fit(samples, head(), progress=False)
    local.score(samples, detector, tmp_path / "scores.parquet", by_layer=True, progress=False)
    table = pq.read_table(tmp_path / "scores.parquet").to_pydict()
    shares = np.asarray(detector(ROWS, features=[*layers.values()]).leverage_by_layer)
    for number, name in enumerate(("embedding", "embedding (layer)", "encoder")):
        np.testing.assert_allclose(table[f"leverage.{name}"], shares[:, number], rtol=1e-4, atol=1e-6)


def test_resumed_table_has_the_columns_of_the_first_run(tmp_path: Path, samples: EmbeddingFile) -> None:
    detector, _ = local.fit(samples, head(), progress=False)
    folder = tmp_path / "scores.csv.parts"
    PartStore(folder, "npz").begin(local.manifest(samples, detector), [(0, 300)])
    with pytest.raises(ValueError, match=r"belongs to another run: the .*columns changed"):
        local.score(samples, detector, tmp_path / "scores.csv", by_layer=True, progress=False)


def test_feature_that_is_not_finite_is_named(tmp_path: Path) -> None:
    bad = {name: rows.copy() for name, rows in LAYERS.items()}
    bad["block.1"][217, 2] = np.inf
    samples = open_embeddings(write_layers(tmp_path / "bad.parquet", ROWS, bad, group=50))
    with pytest.raises(ValueError, match=r"row 217 of .*, holds inf in column 2 of the features of 'block\.1'"):
        local.fit(samples, head(), progress=False)


def test_sums_of_ranges_add_up_to_those_of_all_rows(samples: EmbeddingFile) -> None:
    from pyarrow import Table

    job = SumJob(samples, head())
    tables = [Table.from_pylist([job(start, start + 100)]) for start in (0, 100, 200)]
    (row,) = add_tables(*tables).to_pylist()
    total, _ = row_to_sums(row)
    whole, _ = row_to_sums(job(0, 300))
    assert (total.widths, total.count, total.sample) == (whole.widths, whole.count, whole.sample)
    np.testing.assert_array_equal(total.class_counts, whole.class_counts)
    np.testing.assert_allclose(total.class_sums, whole.class_sums, rtol=1e-12, atol=1e-12)
    for layer in range(3):
        np.testing.assert_allclose(total.layer_matrix(layer), whole.layer_matrix(layer), rtol=1e-12, atol=1e-12)


def test_ranges_grow_with_the_widths_of_the_layers(samples: EmbeddingFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pnml.engines.ranges._CHUNKS", 1)
    monkeypatch.setattr("pnml.engines.ranges._ROWS_PER_FEATURE", 10)
    squares, widths = FEATURES**2 + 5**2 + 3**2, FEATURES + 5 + 3
    ranges = worker_ranges(samples)
    assert ranges[0][0] == 0
    assert all(stop - start >= 10 * squares // widths for start, stop in ranges[:-1])


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
