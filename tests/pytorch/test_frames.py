"""Models that make fewer frames of a sound than it has samples, and are told which samples are padding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import pnml
from pnml.pytorch.layers import LayersNotFoundWarning
from pnml.pytorch.masks import mask_of_length

from .networks import CLASSES, seeded

WIDTH, KERNEL, STRIDE = 6, 4, 3


class Encoder(nn.Module):
    """Frames of a sound, and blocks on them; frames of padding are left out of what the others see."""

    def __init__(self, *, says_lengths: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.frames = nn.Conv1d(1, WIDTH, KERNEL, STRIDE)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(4))
        if says_lengths:
            self._get_feat_extract_output_lengths = lambda lengths: (lengths - KERNEL) // STRIDE + 1

    def forward(self, x: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        x = self.frames(x[:, None]).transpose(1, 2)
        lengths = (attention_mask.sum(dim=1) - KERNEL) // STRIDE + 1
        counts = (torch.arange(x.shape[1]) < lengths[:, None])[:, :, None].float()
        for block in self.blocks:
            x = block(x) + ((x * counts).sum(dim=1) / counts.sum(dim=1))[:, None]
        return x, counts


class Speech(nn.Module):
    """A class for every sound, or for every frame."""

    def __init__(self, *, says_lengths: bool = True, every_frame: bool = False) -> None:
        super().__init__()
        self.encoder, self.every_frame = Encoder(says_lengths=says_lengths), every_frame
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        x, counts = self.encoder(x, attention_mask)
        logits: Tensor = self.head(x if self.every_frame else (x * counts).sum(dim=1) / counts.sum(dim=1))
        return logits


def sounds(count: int, seed: int, padding: int = 0) -> dict[str, Tensor]:
    lengths = torch.randint(20, 41, (count,), generator=seeded(seed + 100))
    mask = (torch.arange(40) < lengths[:, None]).long()
    x = torch.randn(count, 40, generator=seeded(seed)) * mask
    wider = torch.zeros(count, padding)
    return {"x": torch.cat([x, wider], dim=1), "attention_mask": torch.cat([mask, wider.long()], dim=1)}


def test_more_padding_does_not_change_the_regret_of_a_sound() -> None:
    guard = pnml.guard(Speech().eval()).fit([sounds(40, 0), sounds(40, 1, padding=7)], progress=False)
    assert guard.layers[0] == "encoder.frames"
    assert len(guard.layers) == 5
    expected = guard(**sounds(9, 2)).regret
    for padding in (1, 7, 30):
        torch.testing.assert_close(guard(**sounds(9, 2, padding)).regret, expected, rtol=1e-3, atol=1e-6)


def test_frames_of_padding_are_not_learnt_from() -> None:
    model = Speech(every_frame=True).eval()
    with pytest.warns(LayersNotFoundWarning, match="every token or pixel"):
        guard = pnml.guard(model).fit([sounds(40, 0)], progress=False)
    batch = sounds(40, 0)
    lengths = (batch["attention_mask"].sum(dim=1) - KERNEL) // STRIDE + 1
    assert guard.fitted().correlation.count == int(lengths.sum())
    assert guard(**sounds(3, 1)).regret.shape == (3, 13)


def test_frames_count_as_the_model_says() -> None:
    mask = torch.tensor([[1] * 10, [1] * 7 + [0] * 3, [1] * 4 + [0] * 6])
    found = mask_of_length(Speech(), mask, 3)
    assert found is not None
    assert found.tolist() == [[True, True, True], [True, True, False], [True, False, False]]
    assert mask_of_length(Speech(), mask, 10) is mask
    assert mask_of_length(Speech(), None, 3) is None
    assert mask_of_length(Speech(), mask, 5) is None, "frames of another layer"
    assert mask_of_length(Speech(says_lengths=False), mask, 3) is None


class OneToken(nn.Module):
    """An answer (n, 1, C), of the only token that is left."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(5, 5), nn.Tanh()) for _ in range(3)))
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(x)[:, : x.shape[1] - 6])
        return logits


def test_an_answer_of_one_token_is_the_answer_of_the_sample() -> None:
    model = OneToken().eval()
    x = torch.randn(60, 7, 5, generator=seeded())
    guard = pnml.guard(model).fit([x], progress=False)
    assert guard.layers
    result = guard(x[:4])
    assert result.regret.shape == (4,)
    with torch.no_grad():
        torch.testing.assert_close(result.logits, model(x[:4])[:, 0])
    with pytest.raises(ValueError, match="gave 3 answers a sample, where the first batch had one: begin with"):
        guard(torch.randn(4, 9, 5, generator=seeded()))
