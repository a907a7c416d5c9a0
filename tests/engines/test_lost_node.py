"""A machine is lost with its workers and results, and another joins: no row is lost or doubled."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pnml.engines.ranges
import pnml.io.embeddings
from pnml import Detector
from pnml.engines.ranges import worker_ranges
from pnml.engines.ray import score_samples, sum_samples
from pnml.io.embeddings import open_embeddings

from .files import COVERAGE, write_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pnml.io.embeddings import EmbeddingFile

T = TypeVar("T")

ray = pytest.importorskip("ray")
utils = pytest.importorskip("ray.cluster_utils")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context"),  # Ray's own, when it starts
    pytest.mark.xdist_group("ray"),
]

FEATURES = 160  # sums of over 100 kB, which Ray keeps on the machine where they were made
CHUNK_ROWS = 10
ROWS = np.random.default_rng(0).normal(size=(4000, FEATURES))  # scored in float64, whatever the chunk
NOTICED_SOON = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
}


class Machines:
    """A cluster of the driver's machine, which has no core to spare, and one more, which does all the work."""

    def __init__(self) -> None:
        self.cluster = utils.Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": 80 << 20, "_system_config": NOTICED_SOON},
        )
        self.worker = self.joined()

    def joined(self) -> Any:
        return self.cluster.add_node(num_cpus=1, object_store_memory=80 << 20)

    def replace_worker(self) -> None:
        self.cluster.remove_node(self.worker, allow_graceful=False)
        self.worker = self.joined()


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with pytest.MonkeyPatch.context() as patch:
        for name in COVERAGE:
            patch.delenv(name, raising=False)
        machines = Machines()
        ray.init(address=machines.cluster.address, log_to_driver=False, logging_level="ERROR")
        yield machines
        ray.shutdown()
        machines.cluster.shutdown()


@pytest.fixture
def samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddingFile:
    monkeypatch.setattr(pnml.io.embeddings, "CHUNK_BYTES", 8 * FEATURES * CHUNK_ROWS)
    monkeypatch.setattr(pnml.engines.ranges, "_ROWS_PER_FEATURE", 1)
    samples = open_embeddings(write_rows(tmp_path / "rows.parquet", ROWS, group=100))
    assert len(worker_ranges(samples)) == 20
    return samples


def waits_to_be_lost(
    read: Callable[[int, int], Iterator[Any]], folder: Path, last: int
) -> Callable[[int, int], Iterator[Any]]:
    """Wrap ``read``: every range leaves a file named after its start and its machine; the ``last`` one then waits."""
    folder.mkdir()

    def wait(start: int, size: int) -> Iterator[Any]:
        (folder / f"{start}-{ray.get_runtime_context().get_node_id()}").touch()
        for number, chunk in enumerate(read(start, size)):
            if number == 1 and len(list(folder.iterdir())) == last:
                (folder / "lose me").touch()
                time.sleep(600)
            yield chunk

    return wait


def done_while_the_worker_is_lost(machines: Machines, folder: Path, work: Callable[[], T]) -> T:
    """Do the work; remove the machine that does it when it asks for it, and let another join."""
    done: Queue[T] = Queue()
    Thread(target=lambda: done.put(work()), daemon=True).start()  # machines join from the main thread only
    for _ in range(6000):
        if (folder / "lose me").exists():
            break
        time.sleep(0.01)
    else:
        pytest.fail("the work did not come so far")
    machines.replace_worker()
    return done.get(timeout=60)


def begun(folder: Path) -> tuple[set[str], set[str]]:
    """Return the starts of the ranges that the lost machine began, and of those that the other one began."""
    by_machine: dict[str, set[str]] = {}
    for note in sorted(folder.glob("*-*"), key=os.path.getmtime):
        start, _, machine = note.name.partition("-")
        by_machine.setdefault(machine, set()).add(start)
    lost, other = by_machine.values()
    return lost, other


def test_sums_of_a_lost_machine_are_computed_again(machines: Machines, samples: EmbeddingFile, tmp_path: Path) -> None:
    notes, head = tmp_path / "notes", Detector(np.eye(3, FEATURES))
    reader = replace(samples.reader, read=waits_to_be_lost(samples.reader.read, notes, last=12))
    watched = replace(samples, reader=reader)
    statistic, _ = done_while_the_worker_is_lost(machines, notes, lambda: sum_samples(watched, head, progress=False))
    lost, other = begun(notes)
    assert len(lost) == 12
    assert len(lost & other) > 1  # also a finished one, whose result was on the lost machine
    rows = ROWS.astype(float)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    matrix = unit.T @ unit
    assert statistic.count == len(ROWS)
    np.testing.assert_allclose(statistic.matrix, matrix, rtol=1e-12, atol=1e-12 * np.abs(matrix).max())


def test_scores_of_a_lost_machine_are_written_once(machines: Machines, samples: EmbeddingFile, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    detector = Detector(rng.normal(size=(3, FEATURES))).fit(ROWS[:500])
    notes = tmp_path / "notes"
    reader = replace(samples.reader, read=waits_to_be_lost(samples.reader.read, notes, last=5))
    watched = replace(samples, reader=reader)
    summary = done_while_the_worker_is_lost(
        machines, notes, lambda: score_samples(watched, detector, tmp_path / "scores", progress=False)
    )
    lost, other = begun(notes)
    assert (len(lost), len(lost & other)) == (5, 1)  # finished files are kept
    assert summary.rows == len(ROWS)
    files = sorted((tmp_path / "scores").glob("rows-*.parquet"))
    table = pa.concat_tables(pq.read_table(path).replace_schema_metadata() for path in files)
    assert table["id"].to_pylist() == list(range(len(ROWS)))
    np.testing.assert_allclose(table["regret"], detector.score(ROWS), rtol=1e-9)
