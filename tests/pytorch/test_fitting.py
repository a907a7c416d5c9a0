"""Rows of small batches wait until there are enough of them to be added to the sums."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pnml
from pnml import Correlation
from pnml.pytorch import fitting
from pnml.pytorch.fitting import TrainingPass

from .networks import mlp, rows

if TYPE_CHECKING:
    from pnml.backend.arrays import Array


@pytest.fixture
def additions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of rows that are added at once."""
    found: list[int] = []
    update = Correlation.update

    def noted(self: Correlation, x: Array, classes: Array | None = None) -> Correlation:
        found.append(len(x))
        return update(self, x, classes)

    monkeypatch.setattr(Correlation, "update", noted)
    return found


@pytest.mark.parametrize("layers", ["auto", "last"])
def test_batches_of_any_size_are_added_together(layers: str, additions: list[int]) -> None:
    model, x = mlp(), rows(200)
    whole = pnml.guard(model, layers=layers).fit([x], progress=False).fitted().correlation
    assert additions == [200]
    additions.clear()
    parts = pnml.guard(model, layers=layers).fit(torch.split(x, 7), progress=False).fitted().correlation
    assert additions == [200]
    assert (parts.count, parts.widths) == (whole.count, whole.widths)
    assert parts.widths is not None
    for number in range(len(parts.widths)):  # the model itself rounds otherwise in small batches
        np.testing.assert_allclose(parts.layer_matrix(number), whole.layer_matrix(number), rtol=0, atol=200 * 1e-6)


@pytest.mark.parametrize(("most", "wide_rows", "wide"), [(30, 1024, 1 << 24), (4096, 30, 1), (4096, 1, 30 * 8)])
def test_no_more_rows_wait_than_are_allowed(
    most: int, wide_rows: int, wide: int, additions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "_MOST_ROWS", most)
    monkeypatch.setattr(fitting, "_WIDE_ROWS", wide_rows)
    monkeypatch.setattr(fitting, "_WIDE", wide)
    model = nn.Sequential(nn.Linear(12, 8), nn.Linear(8, 3))
    guard = pnml.guard(model, layers="last").fit(torch.split(torch.rand(100, 12), 16), progress=False)
    assert guard.fitted().correlation.count == 100
    assert additions == [32, 32, 32, 4]


@pytest.mark.parametrize("bad", [0, 3, 6])
def test_the_batch_of_a_bad_row_is_named_whenever_it_is_added(bad: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_MOST_ROWS", 30)
    batches = list(torch.split(rows(100), 16))
    guard = pnml.guard(mlp()).fit(batches, progress=False)
    batches[bad] = batches[bad].clone()
    batches[bad][2, 1] = math.nan
    with pytest.raises(ValueError, match=rf"^batch {bad} of the loader: row 2 holds nan"):
        guard.fit(batches, progress=False)


def test_rows_that_wait_keep_no_larger_tensor_alive() -> None:
    class FirstToken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, tokens: Tensor) -> Tensor:
            logits: Tensor = self.head(self.mix(tokens)[:, 0])
            return logits

    tokens = torch.rand(6, 50, 4)
    for layers in ("auto", "last"):
        guard = pnml.guard(FirstToken(), layers=layers)
        with guard.eval_no_grad():
            guard.find((tokens,), {})
            training = TrainingPass(guard)
            training.add(0, (tokens,), {})
        ((_, waiting),) = training._waiting
        assert waiting.untyped_storage().nbytes() == waiting.numel() * waiting.element_size()
