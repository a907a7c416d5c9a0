"""One model, several threads: each gets its own answers, and the model keeps its mode and its statistics."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import pnml

from .networks import CNN, images


@pytest.mark.parametrize("guards", [1, 2])
@pytest.mark.parametrize("training", [True, False])
def test_threads_get_their_own_answers_and_leave_the_model_as_it_is(training: bool, guards: int) -> None:  # noqa: FBT001
    model = CNN().train(training)
    made = [pnml.guard(model).fit([images(200)], progress=False) for _ in range(guards)]
    batches = [images(5, seed=seed) for seed in range(8)]
    expected = [made[0](batch).regret for batch in batches]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    barrier = threading.Barrier(4, timeout=10)

    def work(thread: int) -> list[bool]:
        barrier.wait()
        numbers = [(thread + step) % 8 for step in range(40)]
        return [torch.equal(made[thread % guards](batches[n]).regret, expected[n]) for n in numbers]

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert all(all(right) for right in pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert all(module.training == training for module in model.modules())
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_calls_of_the_model_itself_in_another_thread_are_not_recorded() -> None:
    model = CNN().eval()
    guard = pnml.guard(model).fit([images(100)], progress=False)
    expected = guard(images(5)).regret
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            with torch.no_grad():
                model(images(3, seed=9))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert all(torch.equal(guard(images(5)).regret, expected) for _ in range(50))
    finally:
        stop.set()
        thread.join()
