"""One statistic updated by several threads at once holds the sums of all batches, and is read between two updates."""

from __future__ import annotations

import copy
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pnml import Correlation
from pnml.core import correlation

if TYPE_CHECKING:
    from pathlib import Path

THREADS = 8
ROWS = np.random.default_rng(0).integers(-4, 5, size=(320, 6)).astype(float) + 0.5  # sums are exact in any order
CLASSES = np.random.default_rng(1).integers(0, 3, size=320)
BATCHES = [slice(start, start + 10) for start in range(0, 320, 10)]


@pytest.fixture
def slow_additions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads take turns between reading a sum and writing it back, as any of them may at any time."""
    add = correlation._add

    def slowly(state: Any, part: Any) -> Any:
        found = add(state, part)
        time.sleep(0.001)
        return found

    monkeypatch.setattr(correlation, "_add", slowly)


@pytest.mark.usefixtures("slow_additions")
def test_updates_of_several_threads_lose_nothing() -> None:
    statistic = Correlation(n_classes=3)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda part: statistic.update(ROWS[part], CLASSES[part]), BATCHES))
    units = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
    np.testing.assert_allclose(statistic.matrix, units.T @ units, rtol=1e-12, atol=1e-12)
    sums = [units[c == CLASSES].sum(axis=0) for c in range(3)]
    np.testing.assert_allclose(statistic.class_sums, sums, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(statistic.class_counts, np.bincount(CLASSES))
    assert statistic.count == 320
    assert statistic.norm_sum == pytest.approx(np.linalg.norm(ROWS, axis=1).sum(), rel=1e-12)
    assert statistic.sample is not None
    assert len(statistic.sample) == 320


@pytest.mark.usefixtures("slow_additions")
def test_copies_sums_and_files_are_of_whole_updates(tmp_path: Path) -> None:
    statistic = Correlation()
    with ThreadPoolExecutor(THREADS) as pool:
        updates = [pool.submit(statistic.update, np.ones((10, 6))) for _ in range(40)]
        updates[0].result()
        while not all(update.done() for update in updates):
            statistic.save(tmp_path / "statistic.safetensors")
            seen = [
                statistic + Correlation(),
                pickle.loads(pickle.dumps(statistic)),  # noqa: S301 - its own
                copy.deepcopy(statistic),
                Correlation.load(tmp_path / "statistic.safetensors"),
            ]
            for one in seen:
                assert one.matrix[0, 0] == one.count
                assert one.count % 10 == 0
    assert statistic.count == 400


@pytest.mark.usefixtures("slow_additions")
def test_threads_that_disagree_about_the_width_do_not_mix() -> None:
    statistic = Correlation()
    with ThreadPoolExecutor(2) as pool:
        updates = [pool.submit(statistic.update, np.ones((4, width))) for width in (3, 5)]
        raised = [update.exception() for update in updates]
    assert sum(isinstance(one, ValueError) for one in raised) == 1
    assert statistic.count == 4
    np.testing.assert_array_equal(statistic.matrix, np.full((statistic.n_features or 0,) * 2, 4.0))


def test_a_copy_is_updated_on_its_own() -> None:
    statistic = Correlation().update(ROWS[:10])
    twin = pickle.loads(pickle.dumps(statistic))  # noqa: S301 - its own
    assert twin == statistic
    twin.update(ROWS[10:20])
    assert (statistic.count, twin.count) == (10, 20)
    assert twin == Correlation().update(ROWS[:10]).update(ROWS[10:20])
