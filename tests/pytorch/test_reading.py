"""A loaded guard reads its model as the one that was saved did, whatever it sees first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import pnml

from .networks import CLASSES, seeded

if TYPE_CHECKING:
    from pathlib import Path

WORDS = 40


class Mean(nn.Module):
    """Blocks on words, and the mean of those that are not 0."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.block, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        counts = (words != 0)[:, :, None]
        logits: Tensor = self.head((self.block(self.embed(words)).tanh() * counts).sum(dim=1) / counts.sum(dim=1))
        return logits


class Pages(nn.Module):
    """Words joined to sentences by weights, and sentences to pages: each with as many features as there are of them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.word, self.share = nn.Embedding(WORDS, 6), nn.Linear(6, 6), nn.Linear(6, 1)
        self.sentence = nn.GRU(6, 6, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        x = self.word(self.embed(words.flatten(0, 1))).tanh()
        sentences = (self.share(x).softmax(dim=1) * x).sum(dim=1)
        logits: Tensor = self.head(self.sentence(sentences.reshape(*words.shape[:2], -1))[0].mean(dim=1))
        return logits


class Beginning(Mean):
    """Takes the logits of the first word, which are those of all where all words are the same."""

    def forward(self, words: Tensor) -> Tensor:
        logits: Tensor = self.head(self.block(self.embed(words)).tanh())
        return logits[:, 0]


def sentences(count: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randint(1, WORDS, (count, *shape), generator=seeded(seed))


def loaded(guard: pnml.Guard, path: Path) -> pnml.Guard:
    guard.save(path / "detector.safetensors")
    return pnml.guard(guard.model).load(path / "detector.safetensors")


def test_what_stands_for_padding_is_stored(tmp_path: Path) -> None:
    guard = pnml.guard(Mean().double().eval()).fit([sentences(60, 8)], progress=False)
    again = loaded(guard, tmp_path)
    again(torch.full((1, 8), 5))  # of one word, which says nothing of padding
    assert again.mask_source == guard.mask_source
    words = sentences(9, 8, seed=1)
    padded = torch.cat([words, torch.zeros(9, 4, dtype=torch.long)], dim=1)
    torch.testing.assert_close(again(padded).regret, guard(words).regret, rtol=1e-9, atol=1e-12)


def test_calibrating_on_a_batch_without_padding_leaves_what_stands_for_it() -> None:
    guard = pnml.guard(Mean()).fit([sentences(60, 8)], progress=False)
    before = guard.mask_source
    guard.calibrate([torch.full((60, 8), 5), sentences(60, 8, seed=1)], progress=False)
    assert guard.mask_source == before is not None


@pytest.mark.parametrize("first", [torch.full((60, 8), 5), torch.full((60, 1), 5)], ids=["one word", "short"])
def test_calibrating_on_a_batch_that_shows_little_leaves_the_head(first: Tensor) -> None:
    guard, words = pnml.guard(Beginning()).fit([sentences(60, 8)], progress=False), sentences(9, 8, seed=1)
    before = guard(words).regret
    guard.calibrate([first, sentences(60, 8, seed=2)], progress=False)
    assert torch.equal(guard(words).regret, before)


EQUAL = torch.full((6, 8), 5)


@pytest.mark.filterwarnings("ignore::pnml.pytorch.layers.LayersNotFoundWarning")
def test_a_head_that_a_batch_of_equal_words_misled_about_is_no_silent_mistake() -> None:
    told = "mean over tokens or pixels of what the head 'head' puts out is not what the model returned"
    with pytest.raises(ValueError, match=f"batch 1 of the loader: the {told}"):
        pnml.guard(Beginning()).fit([EQUAL, sentences(60, 8)], progress=False)


class MaskedMean(Mean):
    """Averages the logits of the words that a mask counts."""

    def forward(self, words: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        logits: Tensor = self.head(self.block(self.embed(words)).tanh())
        counts = torch.ones_like(words) if attention_mask is None else attention_mask
        return (logits * counts[:, :, None]).sum(dim=1) / counts.sum(dim=1, keepdim=True)


@pytest.mark.parametrize("first", [EQUAL, EQUAL[:, :1], EQUAL[:1, :1]], ids=["one word", "short", "one"])
def test_a_loaded_head_is_read_as_in_the_fit_whatever_comes_first(first: Tensor, tmp_path: Path) -> None:
    words = sentences(9, 8, seed=1)
    guard = pnml.guard(Beginning()).fit([sentences(60, 8)], progress=False)
    expected = guard(first).regret, guard(words).regret
    again = loaded(guard, tmp_path)
    for batch, regret in zip((first, words), expected, strict=True):
        torch.testing.assert_close(again(batch).regret, regret)


def test_a_loaded_head_that_reads_a_mask_is_read_with_it(tmp_path: Path) -> None:
    def batch(words: Tensor) -> dict[str, Tensor]:
        return {"words": words, "attention_mask": (torch.arange(words.shape[1]) < 5).long().expand_as(words)}

    guard = pnml.guard(MaskedMean()).fit([batch(sentences(60, 8))], progress=False)
    assert guard.found_head is not None
    assert guard.found_head.ending.reading == "masked mean"
    expected = guard(**batch(sentences(9, 8, seed=1))).regret
    again = loaded(guard, tmp_path)
    with pytest.raises(ValueError, match="fitted with a mask of tokens: pass one again"):
        again(sentences(9, 8, seed=1))
    again(**batch(EQUAL))
    torch.testing.assert_close(again(**batch(sentences(9, 8, seed=1))).regret, expected)


def test_a_fit_that_fails_leaves_how_the_head_is_read() -> None:
    guard, words = pnml.guard(Beginning()).fit([sentences(60, 8)], progress=False), sentences(9, 8, seed=1)
    head, before = guard.found_head, guard(words).regret
    with pytest.raises(ValueError, match="batch 1"):
        guard.fit([EQUAL, sentences(60, 8)], progress=False)
    assert guard.found_head is head
    assert torch.equal(guard(words).regret, before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_mean_over_many_places_may_be_rounded_otherwise(dtype: torch.dtype) -> None:
    class Places(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(8, CLASSES, 1)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(self.body(x).tanh())
            return logits.float().flatten(2).flip(2).mean(dim=2)

    model = Places().to(dtype).eval()
    guard = pnml.guard(model).fit([torch.randn(40, 3, 40, 40, generator=seeded()).to(dtype)], progress=False)
    x = torch.randn(5, 3, 90, 90, generator=seeded(1)).to(dtype)
    torch.testing.assert_close(guard(x).logits.float(), model(x), rtol=0.02, atol=0.01)


@pytest.mark.parametrize("count", [1, 9])
def test_the_axes_of_layers_are_stored(count: int, tmp_path: Path) -> None:
    guard = pnml.guard(Pages().double().eval()).fit([sentences(60, 4, 5)], progress=False)
    again = loaded(guard, tmp_path)
    assert again.found_layers == guard.found_layers
    words = sentences(count, 4, 5, seed=1)
    assert torch.equal(again(words).regret, guard(words).regret)


def test_a_recurrent_layer_has_its_channels_last() -> None:
    guard = pnml.guard(Pages()).fit([sentences(60, 4, 5)], progress=False)
    assert [(layer.name, layer.channel_axis) for layer in guard.found_layers or ()] == [("sentence", 2)]


def test_a_fit_that_fails_leaves_what_stands_for_padding(tmp_path: Path) -> None:
    guard = pnml.guard(Mean()).fit([sentences(60, 8)], progress=False)
    again = loaded(guard, tmp_path)
    with pytest.raises(IndexError):
        again.fit([torch.full((3, 8), 5), torch.full((3, 8), WORDS)], progress=False)
    assert again.mask_source == guard.mask_source


def test_a_detector_that_names_other_layers_is_read_anew(tmp_path: Path) -> None:
    guard = pnml.guard(Mean(), layers=["block"]).fit([sentences(60, 8)], progress=False)
    guard.fitted().layer_names = ("embed",)
    again = loaded(guard, tmp_path)
    assert again.layers == ("embed",)
    assert again.found_layers is None


def test_a_reading_of_another_version_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    guard = pnml.guard(model).fit([torch.randn(50, 8)], progress=False)
    reading = guard.fitted().reading
    assert reading is not None
    reading["layers"][0]["stride"] = 2
    guard.save(tmp_path / "detector.safetensors")
    with pytest.raises(ValueError, match=r"detector.safetensors: the entry 'reading' is of another version .*stride"):
        pnml.guard(model).load(tmp_path / "detector.safetensors")
