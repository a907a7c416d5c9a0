"""Texts with their samples in the second axis, (T, n): padding changes no score, and batches may have any size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import pnml

from .networks import CLASSES, seeded

if TYPE_CHECKING:
    from pathlib import Path

WORDS, PAD = 40, 1
Text = tuple[Tensor, ...]


def texts(count: int, seed: int, tokens: int = 12) -> Text:
    lengths = torch.randint(4, tokens + 1, (count,), generator=seeded(seed))
    words = torch.randint(2, WORDS, (tokens, count), generator=seeded(seed + 50))
    return words.masked_fill(torch.arange(tokens)[:, None] >= lengths, PAD), lengths


def longer(words: Tensor) -> Tensor:
    return torch.cat([words, torch.full((5, words.shape[1]), PAD)])


class Mean(nn.Module):
    """The mean of the words that are no padding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(WORDS, 8, padding_idx=PAD)
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        counts = (words != PAD)[:, :, None]
        logits: Tensor = self.head((self.blocks(self.embed(words)) * counts).sum(dim=0) / counts.sum(dim=0))
        return logits


class Windows(Mean):
    """Convolutions of four words: the model fails on three."""

    def __init__(self) -> None:
        super().__init__()
        self.along = nn.Conv1d(8, 8, 4)

    def forward(self, words: Tensor) -> Tensor:
        logits: Tensor = self.head(self.along(self.blocks(self.embed(words.T)).transpose(1, 2)).amax(dim=2))
        return logits


class Packed(Mean):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(8, 8)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
        packed = pack_padded_sequence(self.blocks(self.embed(words)), lengths, enforce_sorted=False)
        logits: Tensor = self.head(self.rnn(packed)[1][0][-1])
        return logits


def fitted(model: nn.Module, takes: int) -> pnml.Guard:
    return pnml.guard(model.double().eval()).fit([texts(24, seed)[:takes] for seed in range(3)], progress=False)


@pytest.mark.parametrize(("model", "takes"), [(Mean(), 1), (Packed(), 2)])
def test_padding_changes_no_score(model: nn.Module, takes: int, tmp_path: Path) -> None:
    guard = fitted(model, takes)
    assert "blocks.2.1" in guard.layers
    guard.save(tmp_path / "detector.safetensors")
    fresh = texts(9, 8)[:takes]
    expected = guard(*fresh).regret
    for one in (guard, pnml.guard(model).load(tmp_path / "detector.safetensors")):
        torch.testing.assert_close(one(longer(fresh[0]), *fresh[1:]).regret, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("tokens", [9, 12, 24])
def test_samples_may_be_more_or_fewer_than_in_the_fit_or_as_many_as_tokens(tokens: int) -> None:
    guard = fitted(Windows(), 1)
    words: Any = texts(9, 8, tokens)[0]
    alone = torch.cat([guard(words[:, [row]]).regret for row in range(9)])
    torch.testing.assert_close(guard(words).regret, alone, rtol=1e-9, atol=1e-12)
