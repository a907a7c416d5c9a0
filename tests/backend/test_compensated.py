"""Running sums of large matrices, which are added a block at a time."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pnml.backend import compensated
from pnml.backend.compensated import Sum, add, total


@pytest.mark.parametrize("block", [1, 7, 12, 1000])
def test_a_sum_in_blocks_keeps_what_rounding_takes(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compensated, "_BLOCK", block)
    few = np.random.default_rng(0).normal(size=(20, 5, 6))
    parts = np.concatenate([1e9 * few[:1], few, -1e9 * few[:1]])  # what is large goes again
    state: Sum = None
    for part in parts:
        state = add(state, part)
    assert state is not None
    exact = np.vectorize(lambda *numbers: float(sum(map(Fraction, numbers))))(*parts)
    np.testing.assert_allclose(total(state), exact, rtol=4 * np.finfo(np.float64).eps)
    assert abs(np.sum(parts, axis=0) / exact - 1).max() > 1e-9, "without care something is lost"


def test_neither_the_state_nor_the_part_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compensated, "_BLOCK", 4)
    first, second, third = (np.full((3, 3), value) for value in (1.0, 1e-20, 2.0))
    state = add(add(None, first), second)
    kept = [array.copy() for array in state]
    add(state, third)
    for array, copy in zip((*state, first, second, third), (*kept, 1.0, 1e-20, 2.0), strict=True):
        np.testing.assert_array_equal(array, copy)
