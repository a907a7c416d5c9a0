"""What is replayed is what was recorded, for the shapes that come often; the graphs themselves need a GPU."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from pnml import Detector
from pnml.backend import recorded
from pnml.backend.recorded import Recorded

if TYPE_CHECKING:
    from collections.abc import Callable

NO_GPU = "there is no NVIDIA GPU"


class Recorder:
    """Stands in for CUDA: a recording gives what the function gives, and is counted."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.replays = 0

    def __call__(self, function: Callable[[Any], Any], x: Any) -> Callable[[Any], Any]:
        self.shapes.append(x.shape)

        def replay(x: Any) -> Any:
            self.replays += 1
            return function(x)

        return replay


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "_key", lambda arrays: arrays[0].shape)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_shape_is_recorded_when_it_comes_for_the_fourth_time() -> None:
    recorder = Recorder()
    double = Recorded(lambda x: 2 * x, recorder)
    for count in range(1, 7):
        np.testing.assert_array_equal(double(np.full(3, count)), 2 * np.full(3, count))
        double(np.zeros(count + 10))  # shapes that come once
    assert recorder.shapes == [(3,)]
    assert recorder.replays == 3


@pytest.mark.usefixtures("as_on_a_gpu")
def test_only_the_last_four_shapes_are_kept() -> None:
    recorder = Recorder()
    double = Recorded(lambda x: 2 * x, recorder)
    for size in (1, 2, 3, 4, 5):
        for _ in range(4):
            double(np.zeros(size))
    assert recorder.shapes == [(size,) for size in (1, 2, 3, 4, 5)]
    double(np.zeros(2))
    assert len(recorder.shapes) == 5, "still there"
    for _ in range(4):
        double(np.zeros(1))
    assert recorder.shapes[5:] == [(1,)], "dropped, and recorded again"


@pytest.mark.usefixtures("as_on_a_gpu")
def test_what_cannot_be_recorded_is_computed(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("out of memory")

    double = Recorded(lambda x: 2 * x, fail)
    with caplog.at_level("INFO", logger=recorded.__name__):
        results = [double(np.ones(2)).sum() for _ in range(6)]
    assert results == [4] * 6
    assert [entry.getMessage() for entry in caplog.records] == ["scoring without a CUDA graph: out of memory"]


@pytest.mark.usefixtures("as_on_a_gpu")
def test_a_copy_records_anew() -> None:
    recorder = Recorder()
    double = Recorded(abs, recorder)
    for _ in range(5):
        double(np.ones(2))
    other = copy.deepcopy(double)
    other(np.ones(2))
    assert recorder.replays == 2


@pytest.mark.parametrize("x", [np.ones((2, 2)), torch.ones(2, 2)])
def test_nothing_is_recorded_on_a_cpu(x: Any) -> None:
    recorder = Recorder()
    double = Recorded(lambda x: 2 * x, recorder)
    for _ in range(6):
        assert float(double(x).sum()) == 8
    assert not recorder.shapes


@pytest.mark.skipif(not torch.cuda.is_available(), reason=NO_GPU)
def test_replayed_regrets_are_those_of_the_cpu() -> None:
    rng = np.random.default_rng(0)
    weight, train = rng.normal(size=(5, 8)), [rng.normal(size=(400, w)) for w in (8, 6, 10)]
    detector = Detector(weight).fit(train[0], features=train[1:])
    kept: list[tuple[Any, Any]] = []
    for number in range(8):
        x = [rng.normal(size=(32, w)).astype(np.float32) * (1 + number) for w in (8, 6, 10)]
        x[1][3, 2] = np.nan
        embeddings, *features = (torch.tensor(layer, device="cuda") for layer in x)
        found = detector.score(embeddings, features=features)
        expected = detector.score(x[0].astype(np.float64), features=[layer.astype(np.float64) for layer in x[1:]])
        np.testing.assert_allclose(found.cpu(), expected, rtol=1e-5)
        kept.append((found, found.clone()))
    assert all(torch.equal(found.nan_to_num(), at_first.nan_to_num()) for found, at_first in kept)
