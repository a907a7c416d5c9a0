"""On a Ray cluster of this machine: the numbers of one process, also when workers are killed."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import pnml.engines.ranges
import pnml.io.embeddings
from pnml import Detector
from pnml.backend.arrays import to_numpy
from pnml.cli import app
from pnml.engines import jobs, local
from pnml.engines.jobs import SumJob, row_to_sums
from pnml.engines.ranges import worker_ranges
from pnml.engines.ray import SkippedImagesWarning, fit, score, score_samples, sum_samples
from pnml.io.embeddings import open_embeddings
from pnml.io.preparation import Preparation

from .files import (
    COVERAGE,
    FEATURES,
    assert_same_statistic,
    embeddings,
    fitted,
    head,
    layer_features,
    write_folder,
    write_layers,
    write_rows,
)
from .images import embedded, guard, write_images
from .store import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context"),  # Ray's own, when it starts
    pytest.mark.xdist_group("ray"),
]

CHUNK_ROWS = 7
ROWS = embeddings(1000, seed=3)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        for name in COVERAGE:
            patch.delenv(name, raising=False)
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=80 << 20,
            log_to_driver=False,
            logging_level="ERROR",
        )
        yield
        assert ray.is_initialized()  # a connection of the user is kept
        ray.shutdown()


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pnml.io.embeddings, "CHUNK_BYTES", 8 * FEATURES * CHUNK_ROWS)
    monkeypatch.setattr(pnml.engines.ranges, "_ROWS_PER_FEATURE", 1)


def folder_of(path: Path, rows: Any = ROWS) -> Path:
    return write_folder(path, rows, [130, 131, 400, 650, len(rows)], group=60)


def table_at(out: Path) -> pa.Table:
    files = sorted(path for path in out.iterdir() if path.suffix == ".parquet")
    return pa.concat_tables(pq.read_table(path).replace_schema_metadata() for path in files)


def table_of_one_process(samples: Any, detector: Detector) -> pa.Table:
    """Score chunk by chunk, with the detector alone."""
    tables = []
    for chunk in samples.chunks():
        if not len(chunk.ids):
            continue
        result = detector(chunk.embeddings, features=chunk.features, logits=chunk.logits)
        table = result.to_table()
        del table["xtg"]
        if detector.layer_names:
            names = np.array(["embedding", *detector.watched_names])
            table["strangest_layer"] = names[to_numpy(result.strangest_layer, np.int64)]
        tables.append(pa.table({"id": chunk.ids, **table}))
    return pa.concat_tables(tables)


def waits_to_be_killed(read: Callable[[int, int], Iterator[Any]], victim: Path) -> Callable[[int, int], Iterator[Any]]:
    """Wrap ``read``: the first process that reads a second chunk writes its number to a file and waits to be killed."""

    def wait(start: int, size: int) -> Iterator[Any]:
        for number, chunk in enumerate(read(start, size)):
            if number == 1 and not victim.exists():
                note = victim.with_suffix(f".{os.getpid()}")
                note.write_text(str(os.getpid()))
                note.rename(victim)
                time.sleep(600)
            yield chunk

    return wait


@contextmanager
def killer(victim: Path) -> Iterator[None]:
    """Kill the process whose number appears in a file."""

    def kill() -> None:
        while not victim.exists():
            time.sleep(0.01)
        os.kill(int(victim.read_text()), signal.SIGKILL)

    thread = Thread(target=kill, daemon=True)
    thread.start()
    yield
    thread.join(timeout=0)
    assert not thread.is_alive(), "nobody was killed"


def test_fit_on_a_folder_equals_fit_on_its_rows(tmp_path: Path) -> None:
    samples = open_embeddings(folder_of(tmp_path / "train"))
    assert len(worker_ranges(samples)) > 6
    detector = fit(tmp_path / "train", head(), progress=False)
    expected = head().fit(ROWS)
    assert detector.correlation.count == len(ROWS)
    assert_same_statistic(detector.correlation, expected.correlation)
    again, _ = sum_samples(samples, head(), progress=False)
    assert (
        again == detector.correlation
    )  # bit for bit: the order of additions does not depend on which worker is faster


def test_layers_are_fitted_and_scored_as_on_one_machine(tmp_path: Path) -> None:
    path = write_layers(tmp_path / "train.parquet", ROWS, layer_features(len(ROWS)), group=60)
    samples = open_embeddings(path)
    assert len(worker_ranges(samples)) > 3
    detector = fit(path, head(), progress=False)
    assert detector.layer_names == ("stem", "block.1")
    expected, _ = local.fit(samples, head(), progress=False)
    assert_same_statistic(detector.correlation, expected.correlation)
    np.testing.assert_allclose(
        detector.score(ROWS[:50], features=[rows[:50] for rows in layer_features(len(ROWS)).values()]),
        expected.score(ROWS[:50], features=[rows[:50] for rows in layer_features(len(ROWS)).values()]),
        rtol=1e-5,
    )
    score(path, detector, tmp_path / "scores", progress=False)
    assert table_at(tmp_path / "scores").equals(table_of_one_process(samples, detector))
    score(path, detector, tmp_path / "by_layer", by_layer=True, progress=False)
    local.score(samples, detector, tmp_path / "scores.parquet", by_layer=True, progress=False)
    assert table_at(tmp_path / "by_layer").equals(pq.read_table(tmp_path / "scores.parquet"))


def test_scores_equal_those_of_one_process_and_a_killed_job_is_resumed(tmp_path: Path) -> None:
    detector, out = fitted(), tmp_path / "scores"
    samples = open_embeddings(folder_of(tmp_path / "new"))
    summary = score(tmp_path / "new", detector, out, progress=False)
    expected = table_of_one_process(samples, detector)
    assert table_at(out).equals(expected)
    assert expected["id"].to_pylist() == list(range(len(ROWS)))
    assert (summary.rows, summary.flagged) == (len(ROWS), sum(expected["is_ood"].to_pylist()))
    files = sorted(out.glob("rows-*.parquet"))
    written = {path: path.stat().st_mtime_ns for path in files}
    for path in files[2:4]:  # as if the job had been killed before them
        path.unlink()
    (out / ".rows-000000000000-000000000448.parquet.1.partial").write_bytes(b"half")
    assert score(tmp_path / "new", detector, out, progress=False) == summary
    assert table_at(out).equals(expected)
    assert [path for path in files if path.stat().st_mtime_ns != written[path]] == files[2:4]
    assert not list(out.glob(".*"))


def test_worker_killed_during_fit_does_not_change_the_sum(tmp_path: Path) -> None:
    samples = open_embeddings(folder_of(tmp_path / "train"))
    without_kills, _ = sum_samples(samples, head(), progress=False)
    victim = tmp_path / "victim"
    reader = replace(samples.reader, read=waits_to_be_killed(samples.reader.read, victim))
    with killer(victim):
        statistic, _ = sum_samples(replace(samples, reader=reader), head(), progress=False)
    assert statistic.count == len(ROWS)
    assert statistic == without_kills


def test_worker_killed_during_score_loses_and_doubles_no_row(tmp_path: Path) -> None:
    detector = fitted()
    ids = [f"sample-{number}" for number in range(len(ROWS))]
    samples = open_embeddings(write_rows(tmp_path / "new.parquet", ROWS, group=60, ids=ids))
    victim = tmp_path / "victim"
    reader = replace(samples.reader, read=waits_to_be_killed(samples.reader.read, victim))
    with killer(victim):
        summary = score_samples(replace(samples, reader=reader), detector, tmp_path / "scores", progress=False)
    assert summary.rows == len(ROWS)
    assert table_at(tmp_path / "scores")["id"].to_pylist() == ids
    assert table_at(tmp_path / "scores").equals(table_of_one_process(samples, detector))


def test_images_are_scored_by_actors_of_which_one_is_killed(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", 330, spoiled=range(40, 44))
    plain = embedded(folder, guard(), batch=2)
    expected = local.fit(plain, plain.guard, progress=False).detector
    victim = tmp_path / "victim"
    reader = replace(plain.reader, read=waits_to_be_killed(plain.reader.read, victim))
    guarded = guard()
    with killer(victim), pytest.warns(SkippedImagesWarning, match=r"4 of 330 images .* one is 0040\.png"):
        detector = fit(replace(plain, reader=reader, guard=guarded), guarded, progress=False)
    assert guarded.head_name == "3"
    assert guarded.detector is detector
    assert detector.correlation.count == expected.correlation.count == 326
    assert detector.layer_names == expected.layer_names == guarded.layers
    assert_same_statistic(detector.correlation, expected.correlation)
    assert detector.preparation == {**Preparation().record(), "shape": [4, 4]}
    with pytest.warns(SkippedImagesWarning):
        score(folder, guarded, tmp_path / "scores", batch_size=2, progress=False)
    assert table_at(tmp_path / "scores").equals(table_of_one_process(plain, detector))


def test_s3_store_is_read_and_written(tmp_path: Path) -> None:
    with serving() as store:
        for path in folder_of(tmp_path / "new").iterdir():
            store.objects[f"bucket/new/{path.name}"] = path.read_bytes()
        detector = fit(store.uri("bucket/new"), head(), progress=False)
        score(store.uri("bucket/new"), detector, store.uri("bucket/scores"), progress=False)
        names = sorted(name for name in store.objects if name.startswith("bucket/scores/rows-"))
        found = pa.concat_tables(pq.read_table(pa.BufferReader(store.objects[name])) for name in names)
    samples = open_embeddings(tmp_path / "new")
    assert found.replace_schema_metadata().equals(table_of_one_process(samples, detector))


def test_errors_of_workers_are_raised_as_on_one_machine(tmp_path: Path) -> None:
    rows = ROWS.copy()
    rows[777, 2] = np.inf
    folder_of(tmp_path / "bad", rows)
    with pytest.raises(ValueError, match=r"row 777 of .*bad, counted from 0, holds inf in column 2: fill"):
        fit(tmp_path / "bad", head(), progress=False)
    samples = open_embeddings(tmp_path / "bad")

    def read(start: int, size: int) -> Iterator[Any]:
        raise ZeroDivisionError("division by zero")

    broken = replace(samples, reader=replace(samples.reader, read=read))
    with pytest.raises(
        ray.exceptions.RayTaskError, match="division by zero"
    ):  # not an error of the user: raised with its traceback
        sum_samples(broken, head(), progress=False)
    with pytest.raises(
        ValueError, match="expected no number of cores, which the connected Ray determines itself, got 4"
    ):
        fit(tmp_path / "bad", head(), cpus=4)
    np.save(tmp_path / "rows.npy", ROWS)
    with pytest.raises(ValueError, match="is no parquet: the engine ray reads parquet files"):
        fit(tmp_path / "rows.npy", head())


def test_commands_print_and_write_the_same_as_without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_of(tmp_path / "new")
    fitted().save(tmp_path / "detector.safetensors")
    monkeypatch.chdir(tmp_path)

    def run(*more: str) -> Result:
        return CliRunner().invoke(app, ["score", "detector.safetensors", "--embeddings", "new", "--out", *more])

    plain, spread = run("plain.parquet"), run("scores", "--engine", "ray")
    assert spread.exit_code == 0, spread.output
    assert table_at(tmp_path / "scores").equals(pq.read_table(tmp_path / "plain.parquet"))
    assert spread.stdout == plain.stdout.replace("plain.parquet", "scores")
    assert spread.stdout.startswith("scored 1,000 rows of new into scores\nregret in nats: min ")
    (tmp_path / "new" / "part-0.parquet").touch()
    assert "new is not as the earlier run read it: rows that are" in run("scores", "--engine", "ray").stderr
    assert table_at(tmp_path / "scores").equals(pq.read_table(tmp_path / "plain.parquet"))
    assert run("scores", "--engine", "ray", "--restart").exit_code == 0
    assert "--cpus goes with --engine ray only" in run("x.parquet", "--cpus", "2").stderr
    assert "is no file of this machine" in run("s3://bucket/scores").stderr
    assert "is no file of this machine" in run("scores").stderr
    np.savez("head.npz", weight=head().weight, bias=head().bias)
    words = ["fit", "--embeddings", "new", "--head", "head.npz", "--out", "detector.safetensors"]
    said = [CliRunner().invoke(app, [*words, "--engine", engine]).stdout for engine in ("plain", "ray")]
    assert said[0] == said[1]


def test_workers_run_jobs_and_name_missing_packages(tmp_path: Path) -> None:
    samples = open_embeddings(folder_of(tmp_path / "train"))
    natural = Detector(head().weight, head().bias, embedding_scale="natural")
    job = ray.put(ray.cloudpickle.dumps(SumJob(samples, natural)))
    row = jobs.JobActor()({"start": 0, "stop": 70}, job)
    statistic, _ = row_to_sums(row)
    np.testing.assert_allclose(statistic.matrix, ROWS[:70].T.astype(float) @ ROWS[:70], rtol=1e-12)
    images = embedded(write_images(tmp_path / "images", 6), guard(), batch=2)
    _ = next(images.chunks())  # which finds the head
    job = ray.put(ray.cloudpickle.dumps(SumJob(images, Detector(images.guard.head.weight, images.guard.head.bias))))
    assert row_to_sums(jobs.JobActor()({"start": 0, "stop": 4}, job)).correlation.count == 4
    unknown = ray.put(b"cnowhere_to_be_found\nThing\n.")
    with pytest.raises(jobs.UserError, match=r"a worker cannot load the model .*install its package"):
        jobs.run_job({"start": 0, "stop": 70}, unknown)
