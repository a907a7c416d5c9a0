"""A guard on an NVIDIA GPU says what it says on the CPU: pooled, joined, recorded and replayed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import pnml
from pnml import Guard

from .architectures import ARCHITECTURES, call, drawn
from .networks import CNN, images, loader

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no NVIDIA GPU")

RTOL = 1e-5
CALLS = 6  # more than are made before a graph is recorded


def on_gpu(inputs: dict[str, Tensor] | Tensor) -> Any:
    return {name: x.cuda() for name, x in inputs.items()} if isinstance(inputs, dict) else inputs.cuda()


def check_decisions(guard: Guard, found: pnml.Result, known: pnml.Result) -> None:
    """Check p-values and decisions to be those of the regrets up to rounding, which may break ties."""
    threshold = guard.fitted().threshold
    assert threshold is not None
    assert found.p_value is not None
    assert found.is_ood is not None
    smaller, larger = known.regret * (1 - RTOL), known.regret * (1 + RTOL)
    p_value, is_ood = found.p_value.cpu(), found.is_ood.cpu()
    least, most = threshold.p_value(larger) * (1 - RTOL), threshold.p_value(smaller) * (1 + RTOL)
    assert bool(((least <= p_value) & (p_value <= most)).all())
    assert bool((threshold.is_ood(smaller) <= is_ood).all() & (is_ood <= threshold.is_ood(larger)).all())


@pytest.mark.filterwarnings("ignore::pnml.core.detector.ZeroEmbeddingWarning")
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_regrets_and_decisions_are_those_of_the_cpu(name: str) -> None:
    """In float64, so that the networks agree; batch after batch, so that replays read the new one."""
    batch = ARCHITECTURES[name].batch
    guard = pnml.guard(drawn(ARCHITECTURES[name].build))
    guard.fit([batch(40, seed) for seed in range(4)], progress=False)
    guard.calibrate([batch(60, 5)], progress=False)
    batches = [batch(7, 10 + number) for number in range(CALLS)] + [batch(1, 20), batch(150, 21)]
    expected = [call(guard, inputs) for inputs in batches]
    try:
        guard.cuda()
        for inputs, known in zip(batches, expected, strict=True):
            found = call(guard, on_gpu(inputs))
            assert found.regret.is_cuda
            for field in ("regret", "leverage_by_layer", "pnml_probabilities", "prediction"):
                np.testing.assert_allclose(
                    getattr(found, field).cpu(), getattr(known, field), rtol=RTOL, atol=1e-7, err_msg=field
                )
            check_decisions(guard, found, known)
    finally:
        guard.cpu()


def test_a_guard_fitted_on_the_gpu_is_that_of_the_cpu() -> None:
    inputs = loader(images(120).double())
    model = CNN().double().eval()
    expected = pnml.guard(model).fit(inputs, progress=False)(images(30, seed=1).double()).regret
    found = pnml.guard(model.cuda()).fit(inputs, progress=False)(images(30, seed=1).double().cuda()).regret
    np.testing.assert_allclose(found.cpu(), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_flags_what_is_no_number(dtype: torch.dtype) -> None:
    guard = pnml.guard(CNN().eval().cuda().to(dtype)).fit([images(120).cuda().to(dtype)], progress=False)
    guard.calibrate([images(60, seed=1).cuda().to(dtype)], progress=False)
    x = images(8, seed=2).cuda().to(dtype)
    x[3] = torch.nan
    for _ in range(CALLS):
        found = guard(x)
        assert found.regret.isnan().tolist() == [number == 3 for number in range(8)]
        assert bool(found.is_ood[3])


def test_threads_do_not_read_each_other_s_batches() -> None:
    guard = pnml.guard(CNN().double().eval().cuda()).fit([images(120).double().cuda()], progress=False)
    batches = [images(16, seed=seed).double().cuda() for seed in range(40)]
    expected = [guard(x).regret for x in batches]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: guard(x).regret, batches))
    for one, known in zip(found, expected, strict=True):
        torch.testing.assert_close(one, known)
