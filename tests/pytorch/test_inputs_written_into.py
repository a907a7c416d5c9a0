"""Models that write into their inputs: every pass in search of a head and of layers sees what the loader yielded."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import pnml

from .networks import CLASSES, images, mlp, rows


class Normalising(nn.Module):
    """Normalises its input, in place or not."""

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.inner, self.in_place = mlp(), in_place

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.in_place else x.clone()
        logits: Tensor = self.inner(x.sub_(0.5).div_(0.25))
        return logits


class Pathways(nn.Module):
    """Takes two pictures a sample in a list, and puts what it makes of them into that list."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.bodies = nn.ModuleList(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)) for _ in range(2))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: list[Tensor]) -> Tensor:
        for number, body in enumerate(self.bodies):
            x[number] = body(x[number])
        logits: Tensor = self.head(torch.cat([part.mean(dim=(2, 3)) for part in x], dim=1))
        return logits


@pytest.mark.parametrize("layers", ["auto", "last"])
def test_inputs_that_are_normalised_in_place_are_learnt_from_as_they_came(layers: str) -> None:
    written, copied = (
        pnml.guard(Normalising(in_place=in_place).eval(), layers=layers).fit([rows(60), rows(60, 1)], progress=False)
        for in_place in (True, False)
    )
    assert torch.equal(written(rows(9, 2)).regret, copied(rows(9, 2)).regret)


def test_a_list_of_inputs_may_be_written_into() -> None:
    guard = pnml.guard(Pathways().eval(), inputs=lambda batch: (list(batch),))
    guard.fit([(images(20, seed), images(20, seed + 9)) for seed in range(3)], progress=False)
    assert guard.layers
    assert guard([images(5, 7), images(5, 8)]).regret.shape == (5,)
