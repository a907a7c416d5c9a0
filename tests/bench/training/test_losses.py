"""Compare the penalties with their formulas in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from pnml_bench.training import ConfidenceControl, EnergyMargins

if TYPE_CHECKING:
    from numpy.typing import NDArray


def logits(scale: float, shape: tuple[int, int], seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(0, scale, shape)


def probabilities(values: NDArray[np.float64]) -> NDArray[np.float64]:
    exponentials = np.exp(values)
    total: NDArray[np.float64] = exponentials.sum(axis=1, keepdims=True)
    return exponentials / total


@pytest.mark.parametrize("scale", [0.1, 3.0, 20.0])
def test_energy_margins_match_formula(scale: float) -> None:
    inside, outside = logits(scale, (7, 10), 0), logits(scale, (11, 10), 1)
    expected = 0.0
    for energy in -np.log(np.exp(inside).sum(axis=1)):
        expected += max(energy + 23, 0) ** 2 / 7
    for energy in -np.log(np.exp(outside).sum(axis=1)):
        expected += max(-5 - energy, 0) ** 2 / 11
    found = EnergyMargins(inside=-23.0)(torch.from_numpy(inside), torch.from_numpy(outside), 0.5)
    assert found.item() == pytest.approx(0.1 * expected, rel=1e-12)


@pytest.mark.parametrize("scale", [0.1, 3.0, 20.0])
def test_confidence_control_matches_formula(scale: float) -> None:
    inside, outside = logits(scale, (7, 10), 0), logits(scale, (11, 10), 1)
    confidence = np.mean([row.max() for row in probabilities(inside)])
    variation = sum(abs(1 / 10 - p) for row in probabilities(outside) for p in row)
    expected = 0.07 * (0.9 - confidence) ** 2 + 0.05 * variation
    found = ConfidenceControl()(torch.from_numpy(inside), torch.from_numpy(outside), 0.9)
    assert found.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("penalty", [EnergyMargins(inside=-3.0, outside=-2.0), ConfidenceControl()])
def test_gradient_step_lowers_penalty(penalty: EnergyMargins | ConfidenceControl) -> None:
    inside, outside = (torch.from_numpy(logits(1.0, (5, 10), seed)).requires_grad_() for seed in (0, 1))
    before = penalty(inside, outside, 0.9)
    gradients = torch.autograd.grad(before, (inside, outside))
    after = penalty(inside - 0.01 * gradients[0], outside - 0.01 * gradients[1], 0.9)
    assert after.item() < before.item()
