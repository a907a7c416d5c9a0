"""Work on all cores: the same to the last bit as on one, and other threads keep their settings."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from pnml import Correlation, Detector
from pnml.backend import rows as row_tools
from pnml.backend import threads as threads_module
from pnml.backend.threads import spread

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH = 20


def set_threads(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(threads_module, "blas_threads", lambda: count)


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    set_threads(monkeypatch, request.param)
    return int(request.param)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tools, "_CHUNK_BYTES", 8 * WIDTH * 100)


@pytest.fixture(autouse=True)
def _blas_on_one_thread() -> Iterator[None]:
    """What is not spread must not depend on the machine's cores either."""
    with threadpool_limits(1, user_api="blas"):
        yield


def rows(n: int = 5000, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(0.3, 1, size=(n, WIDTH)).astype(np.float32)


def names_of_threads(pieces: int = 4) -> set[str]:
    return set(spread(lambda _: threading.current_thread().name, range(pieces)))


def test_pieces_come_in_order_from_as_many_threads(threads: int) -> None:
    meeting = threading.Barrier(threads, timeout=20)

    def work(piece: int) -> tuple[int, str]:
        if piece < threads:
            meeting.wait()  # for which all threads must be at work at once
        return piece, threading.current_thread().name

    values, names = zip(*spread(work, range(100)), strict=True)
    assert values == tuple(range(100))
    assert len(set(names)) == threads


@pytest.mark.parametrize("n", [1, 2100, 32_780, 40_000])  # strips and products that come out even, and do not
def test_the_sum_is_that_of_one_thread_to_the_last_bit(n: int, threads: int) -> None:
    assert threads
    x = rows(n)
    whole = Correlation(unit_norm=True).update(x)
    unit = x / np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    np.testing.assert_allclose(whole.matrix, unit.T @ unit, rtol=1e-6, atol=1e-6)
    with pytest.MonkeyPatch.context() as patch:
        set_threads(patch, 1)
        assert Correlation(unit_norm=True).update(x) == whole


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_are_those_of_one_thread_to_the_last_bit(dtype: Any, threads: int) -> None:
    assert threads
    detector = Detector(rows(4, seed=1)).fit(rows())
    x = rows(3000, seed=2).astype(dtype)
    found, xtg = detector.score(x), detector.subspace.xtg(x)
    few = [float(detector.score(x[n : n + 1])[0]) for n in range(0, 3000, 100)]
    np.testing.assert_allclose(found[::100], few, rtol=1e-3)
    with pytest.MonkeyPatch.context() as patch:
        set_threads(patch, 1)
        np.testing.assert_array_equal(found, detector.score(x))
        np.testing.assert_array_equal(xtg, detector.subspace.xtg(x))


def test_an_error_is_raised_and_settings_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    set_threads(monkeypatch, 2)
    before = threadpool_info()

    def work(piece: int) -> int:
        if piece == 5:
            raise ValueError("piece 5 is broken")
        return piece

    with pytest.raises(ValueError, match="piece 5 is broken"):
        list(spread(work, range(10)))
    assert threadpool_info() == before
    assert list(spread(lambda piece: 2 * piece, range(3))) == [0, 2, 4]


def test_blas_has_one_thread_within_the_work_and_its_own_number_afterwards() -> None:
    def blas() -> set[int]:
        return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        assert list(spread(lambda _: blas(), range(3))) == [{1}] * 3
        assert blas() == {2}


def test_work_within_work_stays_in_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    set_threads(monkeypatch, 2)
    for names in spread(lambda _: {threading.current_thread().name} | names_of_threads(), range(4)):
        assert len(names) == 1


def test_as_many_threads_as_blas_would_use() -> None:
    here = {threading.current_thread().name}
    assert names_of_threads() == here
    with threadpool_limits(2, user_api="blas"):
        assert names_of_threads().isdisjoint(here)
        assert names_of_threads(pieces=1) == here


def test_gradients_pass_through_many_chunks() -> None:
    detector = Detector(rows(4, seed=1)).fit(rows())
    x = torch.tensor(rows(1000, seed=3), requires_grad=True)
    assert x.grad is None
    detector.score(x).sum().backward()
    assert x.grad is not None
    assert (x.grad.norm(dim=1) > 0).all()


FORKED = """
import os, warnings
import numpy as np, torch
from pnml import Correlation, Detector
from pnml.backend import rows as row_tools
warnings.simplefilter("ignore")  # forking beside threads, which Python warns of, is the point
row_tools._CHUNK_BYTES = 1 << 12
rows = torch.tensor(np.random.default_rng(0).normal(size=(4000, 8)))
detector = Detector(rows[:3]).fit(rows)
expected = detector.score(rows)
child = os.fork()
if child == 0:
    os._exit(0 if (detector.score(rows) == expected).all() else 1)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_starts_its_own_threads() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60)
