"""Work on all cores: the same to the last bit as on one, and nobody else's threads are touched for longer than it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from pnml import Detector
from pnml.backend import rows as row_tools
from pnml.backend import threads as threads_module
from pnml.backend.products import sum_of_products
from pnml.core.sample import RowSample

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARIES = [np.asarray, torch.tensor]
WIDTH = 20


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(threads_module, "_threads", lambda _: request.param)
    return int(request.param)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tools, "_CHUNK_BYTES", 8 * WIDTH * 100)


@pytest.fixture(autouse=True)
def _libraries_on_one_thread() -> Iterator[None]:
    """What is not spread is not to depend on the machine's cores either."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1, user_api="blas"):
        yield
    torch.set_num_threads(before)


def rows(n: int = 5000, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(0.3, 1, size=(n, WIDTH)).astype(np.float32)


def where_it_runs(beside: Any, pieces: int = 4) -> set[str]:
    return set(threads_module.spread(lambda _: threading.current_thread().name, range(pieces), beside))


@pytest.mark.parametrize("library", LIBRARIES)
def test_pieces_come_in_order_from_as_many_threads(library: Any, threads: int) -> None:
    x = library(np.arange(100.0))
    meeting = threading.Barrier(threads, timeout=20)

    def work(piece: int) -> tuple[float, str]:
        if piece < threads:
            meeting.wait()  # for which all threads must be at work at once
        return float(x[piece]), threading.current_thread().name

    values, names = zip(*threads_module.spread(work, range(100), x), strict=True)
    assert values == tuple(range(100))
    assert len(set(names)) == threads


@pytest.mark.parametrize("n", [1, 2100, 32_780, 40_000])  # strips and products that come out even, and do not
def test_the_sum_is_that_of_one_thread_to_the_last_bit(n: int, threads: int) -> None:
    x = rows(n)
    whole, norms = sum_of_products(x, unit_norm=True)
    lengths = np.linalg.norm(x.astype(np.float64), axis=1)
    unit = x / lengths[:, None]
    np.testing.assert_allclose(whole, unit.T @ unit, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(norms, lengths, rtol=1e-14)
    sample = RowSample.of(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads_module, "_threads", lambda _: 1)
        alone, _ = sum_of_products(x, unit_norm=True)
        assert RowSample.of(x) == sample
    np.testing.assert_array_equal(whole, alone)


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_scores_are_those_of_one_thread_to_the_last_bit(library: Any, precision: Any, threads: int) -> None:
    detector = Detector(rows(4, seed=1)).fit(rows())
    x = library(rows(3000, seed=2))
    found, xtg = detector.score(x, precision=precision), detector.subspace.xtg(x)
    assert isinstance(found, type(x))
    few = [float(detector.score(x[n : n + 1])[0]) for n in range(0, 3000, 100)]
    np.testing.assert_allclose(found[::100], few, rtol=1e-4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads_module, "_threads", lambda _: 1)
        np.testing.assert_array_equal(found, detector.score(x, precision=precision))
        np.testing.assert_array_equal(xtg, detector.subspace.xtg(x))


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_error_arrives_and_everything_is_as_before(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "_threads", lambda _: 2)
    x = library(np.ones(3))
    before = threadpool_info(), torch.get_num_threads()

    def work(piece: int) -> float:
        if piece == 5:
            raise ValueError("piece 5 is broken")
        return float(x[0])

    with pytest.raises(ValueError, match="piece 5 is broken"):
        list(threads_module.spread(work, range(10), x))
    assert (threadpool_info(), torch.get_num_threads()) == before
    assert list(threads_module.spread(lambda piece: 2 * piece, range(3), x)) == [0, 2, 4]


def test_threads_of_others_keep_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "_threads", lambda _: 2)
    torch.set_num_threads(2)
    x = torch.ones(3)
    assert set(threads_module.spread(lambda _: torch.get_num_threads(), range(8), x)) == {1}
    with ThreadPoolExecutor(1) as other:
        assert other.submit(torch.get_num_threads).result() == torch.get_num_threads() == 2
    numpy_threads = [info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"]
    with threadpool_limits(2, user_api="blas"):
        inside = threads_module.spread(
            lambda _: {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"},
            range(3),
            np.ones(3),
        )
        assert list(inside) == [{1}] * 3
    assert [info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"] == numpy_threads


def test_work_within_work_stays_in_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "_threads", lambda _: 2)
    x = np.ones(3)
    for names in threads_module.spread(lambda _: {threading.current_thread().name} | where_it_runs(x), range(4), x):
        assert len(names) == 1


def test_as_many_threads_as_the_library_would_use() -> None:
    torch.set_num_threads(2)
    here = {threading.current_thread().name}
    tensor, recorded = torch.ones(3), torch.ones(3, requires_grad=True)
    assert where_it_runs(tensor).isdisjoint(here)
    assert where_it_runs(tensor, pieces=1) == here
    assert where_it_runs(torch.empty(3, device="meta")) == here
    assert where_it_runs(recorded) == here
    with torch.no_grad():
        assert where_it_runs(recorded).isdisjoint(here)
    torch.set_num_threads(1)
    assert where_it_runs(tensor) == where_it_runs(np.ones(3)) == where_it_runs([1.0]) == here
    with threadpool_limits(2, user_api="blas"):
        assert where_it_runs(np.ones(3)).isdisjoint(here)


def test_gradients_pass_through_many_chunks() -> None:
    torch.set_num_threads(2)
    detector = Detector(rows(4, seed=1)).fit(rows())
    x = torch.tensor(rows(1000, seed=3), requires_grad=True)
    assert x.grad is None
    detector.score(x).sum().backward()
    assert x.grad is not None
    assert (x.grad.norm(dim=1) > 0).all()


def test_a_torch_whose_threads_are_shared_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads_module, "_torch_threads_are_per_caller", lambda: False)
    torch.set_num_threads(2)
    assert where_it_runs(torch.ones(3)) == {threading.current_thread().name}


FORKED = """
import os, warnings
import numpy as np, torch
from pnml import Detector
from pnml.backend import rows as row_tools
warnings.simplefilter("ignore")  # forking beside threads, which Python warns of, is the point
torch.set_num_threads(2)
row_tools._CHUNK_BYTES = 1 << 12
rows = torch.tensor(np.random.default_rng(0).normal(size=(4000, 8)))
detector = Detector(rows[:3]).fit(rows)
expected = detector.score(rows)
child = os.fork()
if child == 0:
    os._exit(0 if (detector.score(rows) == expected).all() else 1)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60)
