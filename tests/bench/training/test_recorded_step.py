"""A recorded step does what the step does, on every batch, and recording it changes nothing."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest
import torch
from torch import Tensor

from pnml_bench.training import epoch, train
from pnml_bench.training.epoch import record_step

from .small import small_recipe, small_set

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Sum:
    """Sums batches, and keeps the last one's share in a tensor that the first step makes."""

    def __init__(self) -> None:
        self.total = torch.tensor(5.0)
        self.made: list[Tensor] = []

    def step(self, x: Tensor, y: Tensor) -> None:
        if not self.made:
            self.made.append(torch.zeros(()))
        self.made[0] += x.sum()
        self.total += (x * y).sum()

    def changed(self) -> list[Tensor]:
        return [self.total, *self.made]


def tried_twice(step: Callable[..., None], given: tuple[Tensor, ...]) -> Callable[[], None]:
    """Stand in for a CUDA graph: do steps, then return one that reads the same memory."""
    for _ in range(2):
        step(*given)
    return lambda: step(*given)


def test_recording_changes_nothing_and_replays_read_each_batch() -> None:
    counted, batch = Sum(), (torch.ones(3), torch.full((3,), 2.0))
    replay = record_step(counted.step, batch, counted.changed, capture=tried_twice)
    assert counted.total == 5.0
    assert counted.made[0] == 0.0
    replay(torch.tensor([1.0, 2.0, 3.0]), torch.ones(3))
    replay(torch.zeros(3), torch.ones(3))
    assert counted.total == 11.0
    assert counted.made[0] == 6.0
    assert torch.equal(batch[0], torch.ones(3))


def test_a_step_that_cannot_be_recorded_is_done_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    def fail(step: Callable[..., None], given: tuple[Tensor, ...]) -> Callable[[], None]:
        step(*given)
        raise RuntimeError("out of memory")

    counted = Sum()
    with caplog.at_level(logging.WARNING):
        step = record_step(counted.step, (torch.ones(3), torch.ones(3)), counted.changed, capture=fail)
    assert "without a CUDA graph, several times slower: out of memory" in caplog.text
    assert counted.total == 5.0
    step(torch.ones(3), torch.ones(3))
    assert counted.total == 8.0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of PyTorch's own compiler
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_gpu_trains_to_the_same_weights_with_and_without_a_graph(
    tmp_path: Path, optimizer: Literal["sgd", "adamw"], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(small_recipe(lr=0.01), optimizer=optimizer)
    sets = small_set(64, 0), small_set(20, 1)
    recorded = train(recipe, *sets, out=tmp_path / "recorded.safetensors", device="cuda").network.state_dict()
    monkeypatch.setattr(epoch, "record_step", lambda step, _batch, _changed: step)
    plain = train(recipe, *sets, out=tmp_path / "plain.safetensors", device="cuda").network.state_dict()
    for name, weights in plain.items():
        torch.testing.assert_close(recorded[name], weights, rtol=1e-3, atol=1e-4)
