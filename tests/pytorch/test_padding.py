"""Scores do not depend on how far a batch is padded, nor on whether a sample has one token or pixel or several."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import pnml
from pnml.pytorch.layers import LayersNotFoundWarning, find_layers
from pnml.pytorch.masks import mask_of_length
from pnml.pytorch.padding import which_see_padding

from .networks import CLASSES, images, seeded

if TYPE_CHECKING:
    from pathlib import Path


class Pairs(nn.Module):
    """Joins every two tokens into one, as Canine and Funnel do, and answers by the first."""

    def __init__(self, *, sees_padding: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.block = nn.Embedding(50, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.pairs, self.after = nn.Conv1d(8, 8, 2, stride=2), nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.head, self.sees_padding = nn.Linear(8, CLASSES), sees_padding

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        assert attention_mask is not None
        x = self.pairs(self.block(self.embed(input_ids)).transpose(1, 2)).transpose(1, 2)
        x = self.after(x)
        logits: Tensor = self.head(x.mean(dim=1) if self.sees_padding else x[:, 0])
        return logits


class Words(nn.Module):
    """Blocks on words, and the mean of those that count."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.block = nn.Embedding(50, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.head = nn.Linear(8, CLASSES)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        share = attention_mask / attention_mask.sum(dim=1, keepdim=True)
        logits: Tensor = self.head((self.block(self.embed(input_ids)) * share[:, :, None]).sum(dim=1))
        return logits


class Positions(nn.Module):
    """Returns the number of every word, which more padding on its left changes."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.arange(x.shape[1]).float()[None, :, None].expand(*x.shape[:2], 4) / 10


class WithPositions(Words):
    """Computes positions after its words are embedded, as decoders do, that tell nothing of the words."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = Positions()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        self.positions(self.embed(input_ids))
        return super().forward(input_ids, attention_mask)


class Patches(Words):
    """The same for patches of pictures of many shapes, as SigLIP 2 takes them."""

    def forward(self, input_ids: Tensor, pixel_attention_mask: Tensor) -> Tensor:
        return super().forward(input_ids, pixel_attention_mask)


class Packed(nn.Module):
    """A recurrent network that is told the lengths of its sequences, and takes the last step or the mean of all."""

    def __init__(self, *, takes_mean: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.steps = nn.Embedding(50, 8), nn.LSTM(8, 9, batch_first=True)
        self.head, self.takes_mean = nn.Linear(9, CLASSES), takes_mean

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embed(words), lengths, batch_first=True, enforce_sorted=False)
        steps, (last, _) = self.steps(packed)
        steps, _ = pad_packed_sequence(steps, batch_first=True)
        logits: Tensor = self.head(steps.sum(dim=1) / lengths[:, None] if self.takes_mean else last[-1])
        return logits


def texts(count: int, seed: int = 0, length: int = 8, padding: int = 0) -> dict[str, Tensor]:
    words = torch.randint(1, 50, (count, length), generator=seeded(seed))
    mask = torch.ones_like(words)
    after = torch.zeros(count, padding, dtype=torch.long)
    return {"input_ids": torch.cat([words, after], dim=1), "attention_mask": torch.cat([mask, after], dim=1)}


def test_layers_that_see_padding_are_left_out() -> None:
    guard = pnml.guard(Pairs().eval()).fit([texts(40, seed) for seed in range(4)], progress=False)
    assert set(guard.layers) == {"embed", "block.1"}
    found, expected = guard(**texts(9, seed=9, padding=6)), guard(**texts(9, seed=9))
    torch.testing.assert_close(found.regret, expected.regret, rtol=1e-4, atol=1e-6)


def test_layers_of_a_model_that_sees_padding_itself_stay() -> None:
    guard = pnml.guard(Pairs(sees_padding=True).eval()).fit([texts(40)], progress=False)
    assert {"pairs", "after.1"} & set(guard.layers)


class DenseGraph(nn.Module):
    """Joins the nodes of graphs by a matrix, in which empty nodes are alone, and takes the mean of the others."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.nodes, self.joined = nn.Linear(5, 8), nn.Linear(8, 8)
        self.graph, self.head = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, CLASSES)

    def forward(self, nodes: Tensor, edges: Tensor, is_node: Tensor) -> Tensor:
        x = (edges @ self.joined((edges @ self.nodes(nodes)).relu())).relu()
        share = is_node / is_node.sum(dim=1, keepdim=True)
        logits: Tensor = self.head(self.graph((x * share[:, :, None]).sum(dim=1)))
        return logits


def graphs(count: int, seed: int = 0, padding: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    sizes = torch.randint(3, 8, (count,), generator=seeded(seed))
    is_node = torch.arange(7 + padding) < sizes[:, None]
    both = is_node[:, :, None] & is_node[:, None]
    nodes, edges = torch.randn(count, 7, 5, generator=seeded(seed)), torch.rand(count, 7, 7, generator=seeded(seed))
    nodes, edges = nn.functional.pad(nodes, (0, 0, 0, padding)), nn.functional.pad(edges, (0, padding, 0, padding))
    return nodes * is_node[:, :, None], (edges < 0.5) * both + 0.0, is_node


def test_layers_with_padding_that_a_mask_of_another_part_marks_are_left_out() -> None:
    guard = pnml.guard(DenseGraph(), inputs=tuple).fit([graphs(40, seed) for seed in range(4)], progress=False)
    assert guard.layers == ("graph.0",)
    found, expected = guard(*graphs(9, 9, padding=5)), guard(*graphs(9, 9))
    torch.testing.assert_close(found.regret, expected.regret, rtol=1e-4, atol=1e-6)


def test_without_layers_that_leave_padding_out_the_embeddings_alone_are_watched() -> None:
    model = DenseGraph()
    model.graph = nn.Sequential()
    with pytest.warns(LayersNotFoundWarning, match="all layers before the head change with padding"):
        guard = pnml.guard(model, inputs=tuple).fit([graphs(40, seed) for seed in range(4)], progress=False)
    assert guard.layers == ()


class Counted(nn.Module):
    """Leaves out what follows so many words, of which no name tells."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.steps = nn.Embedding(20, 8), nn.GRU(8, 8, batch_first=True)
        self.last, self.head = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, CLASSES)

    def forward(self, words: Tensor, counted: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embed(words), counted, batch_first=True, enforce_sorted=False)
        logits: Tensor = self.head(self.last(self.steps(packed)[1][-1]))
        return logits


def test_layers_with_padding_behind_lengths_of_another_name_are_left_out() -> None:
    def batch(count: int, seed: int, padding: int = 0) -> tuple[Tensor, Tensor]:
        words = torch.randint(20, (count, 9), generator=seeded(seed))
        counted = torch.randint(3, 10, (count,), generator=seeded(seed))
        return nn.functional.pad(words * (torch.arange(9) < counted[:, None]), (0, padding)), counted

    guard = pnml.guard(Counted(), inputs=tuple).fit([batch(40, seed) for seed in range(4)], progress=False)
    assert guard.layers
    assert "embed" not in guard.layers
    found, expected = guard(*batch(9, 9, padding=5)), guard(*batch(9, 9))
    torch.testing.assert_close(found.regret, expected.regret, rtol=1e-4, atol=1e-6)


class Shares(nn.Module):
    """Takes the mean over each sample, and is told how long it is as a share of the longest."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.points = nn.Sequential(nn.Conv1d(3, 8, 1), nn.ReLU(), nn.Conv1d(8, 16, 1))
        self.cloud, self.head = nn.Linear(16, 8), nn.Linear(8, CLASSES)

    def forward(self, points: Tensor, wav_lens: Tensor) -> Tensor:
        counts = torch.arange(points.shape[1]) < (wav_lens * points.shape[1]).round()[:, None]
        found = self.points(points.transpose(1, 2)).masked_fill(~counts[:, None], 0)
        logits: Tensor = self.head(self.cloud(found.sum(dim=2) / counts.sum(dim=1, keepdim=True)).tanh())
        return logits


def test_layers_with_padding_behind_shares_of_the_longest_are_left_out() -> None:
    def batch(count: int, seed: int, padding: int = 0) -> tuple[Tensor, Tensor]:
        sizes = torch.randint(5, 10, (count,), generator=seeded(seed))
        sizes[0] = 9
        is_point = (torch.arange(9 + padding) < sizes[:, None])[:, :, None]
        points = nn.functional.pad(torch.randn(count, 9, 3, generator=seeded(seed)), (0, 0, 0, padding))
        return points * is_point, sizes / (9 + padding)

    guard = pnml.guard(Shares(), inputs=tuple).fit([batch(40, seed) for seed in range(4)], progress=False)
    assert guard.layers == ("cloud",)


class ByLength(Shares):
    """Has another head for few points."""

    def __init__(self) -> None:
        super().__init__()
        self.few = nn.Linear(8, CLASSES)

    def forward(self, points: Tensor, wav_lens: Tensor) -> Tensor:
        if points.shape[1] > 8:
            return super().forward(points, wav_lens)
        logits: Tensor = self.few(self.cloud(self.points(points.transpose(1, 2)).amax(dim=2)).tanh())
        return logits


def test_a_model_with_another_head_for_fewer_points_is_fitted() -> None:
    points = torch.randn(40, 9, 3, generator=seeded())
    points[:, 6:] = 0
    guard = pnml.guard(ByLength(), inputs=tuple).fit([(points, torch.full((40,), 6 / 9))], progress=False)
    assert guard.head_name == "head"


class Largest(nn.Module):
    """Takes the largest features of a signal."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.block, self.head = nn.Sequential(nn.Conv1d(6, 8, 3), nn.ReLU()), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.block(x.transpose(1, 2)).amax(dim=2))
        return logits


def test_layers_are_watched_where_nothing_but_the_samples_may_tell_of_padding() -> None:
    x = torch.rand(40, 30, 6, generator=seeded())
    x[:, -4:] = 0
    assert "block.1" in pnml.guard(Largest()).fit([x], progress=False).layers


class OwnToken(nn.Module):
    """Puts a token of its own before the words, and answers by it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.own, self.embed = nn.Parameter(torch.randn(1, 1, 8)), nn.Embedding(50, 8)
        encoder = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(encoder, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = torch.cat([self.own.expand(len(input_ids), -1, -1), self.embed(input_ids)], dim=1)
        is_padding = nn.functional.pad(attention_mask == 0, (1, 0), value=False)
        logits: Tensor = self.head(self.encoder(x, src_key_padding_mask=is_padding)[:, 0])
        return logits


def test_layers_with_a_token_of_their_own_before_the_words_are_watched() -> None:
    model = OwnToken().eval()
    guard = pnml.guard(model).fit([texts(40, seed) for seed in range(4)], progress=False)
    assert guard.found_layers is not None
    assert {layer.reach for layer in guard.found_layers if "encoder" in layer.name} == {-1}
    batch = texts(9, seed=9, padding=6)
    expected = guard(**texts(9, seed=9)).regret
    torch.testing.assert_close(guard(**batch).regret, expected, rtol=1e-4, atol=1e-6)
    shifted = {name: x.roll(6, dims=1) for name, x in batch.items()}
    torch.testing.assert_close(guard(**shifted).regret, expected, rtol=1e-4, atol=1e-6)


def test_positions_that_padding_shifts_are_left_out() -> None:
    guard = pnml.guard(WithPositions().eval()).fit([texts(40, seed) for seed in range(4)], progress=False)
    assert "positions" not in guard.layers
    batch = texts(9, seed=9, padding=6)
    found = guard(**{name: x.roll(6, dims=1) for name, x in batch.items()})
    torch.testing.assert_close(found.regret, guard(**texts(9, seed=9)).regret, rtol=1e-4, atol=1e-6)


def test_patches_of_padding_are_left_out() -> None:
    def patches(**batch: Tensor) -> dict[str, Tensor]:
        return {"input_ids": batch["input_ids"], "pixel_attention_mask": batch["attention_mask"]}

    guard = pnml.guard(Patches().eval()).fit([patches(**texts(40, seed)) for seed in range(4)], progress=False)
    found, expected = guard(**patches(**texts(9, seed=9, padding=6))), guard(**patches(**texts(9, seed=9)))
    torch.testing.assert_close(found.regret, expected.regret, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("how", ["no mask", "one token", "left"])
def test_without_padding_to_try_nothing_is_known(how: str) -> None:
    model, batch = Words().eval(), texts(3, length=1 if how == "one token" else 8)
    layers = find_layers(model, (), batch, head="head")
    if how == "left":
        batch["attention_mask"][0, :7] = 0
    given = {"input_ids": batch["input_ids"]} if how == "no mask" else batch
    assert not any(which_see_padding(model, (), given, ("head",), layers))


@pytest.mark.parametrize("by_position", [True, False])
def test_a_text_of_one_word_is_scored(by_position: bool, tmp_path: Path) -> None:  # noqa: FBT001
    model = Words().eval()
    guard = pnml.guard(model).fit([texts(40, seed) for seed in range(4)], progress=False)
    assert len(guard.layers) == 2
    one, padded = texts(9, seed=9, length=1), texts(9, seed=9, length=1, padding=5)
    result = guard(*one.values()) if by_position else guard(**one)
    torch.testing.assert_close(result.regret, guard(**padded).regret, rtol=1e-4, atol=1e-6)
    guard.save(tmp_path / "detector.safetensors")
    loaded = pnml.guard(model).load(tmp_path / "detector.safetensors")
    torch.testing.assert_close(loaded(**one).regret, result.regret)
    words_first = pnml.guard(model).fit([texts(40, length=1), texts(40, length=8)], progress=False)
    assert words_first.fitted().feature_widths == guard.fitted().feature_widths


@pytest.mark.parametrize(("size", "other", "width"), [(8, 5, 8), (5, 8, 4)])
def test_maps_of_one_pixel_and_of_several(size: int, other: int, width: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 4, 5), nn.Tanh())
    model = nn.Sequential(body, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(4, CLASSES)).eval()
    guard = pnml.guard(model, layers=["0"]).fit([images(60)[:, :, :size, :size]], progress=False)
    assert guard.fitted().feature_widths == (width,)
    result = guard(images(9, seed=1)[:, :, :other, :other])
    assert bool(result.regret.isfinite().all())
    guard.save(tmp_path / "detector.safetensors")
    loaded = pnml.guard(model).load(tmp_path / "detector.safetensors")
    torch.testing.assert_close(loaded(images(9, seed=1)[:, :, :other, :other]).regret, result.regret)


@pytest.mark.parametrize("by_position", [True, False])
@pytest.mark.parametrize("takes_mean", [True, False])
def test_lengths_say_what_is_padding(takes_mean: bool, by_position: bool) -> None:  # noqa: FBT001
    def batch(count: int, seed: int, length: int = 9) -> dict[str, Tensor]:
        lengths = torch.randint(2, 8, (count,), generator=seeded(seed))
        words = torch.randint(1, 50, (count, 9), generator=seeded(seed + 50))
        return {"words": nn.functional.pad(words, [0, length - 9], value=7), "lengths": lengths}

    train = [batch(40, seed) for seed in range(4)]
    guard = pnml.guard(Packed(takes_mean=takes_mean).eval()).fit(train, progress=False)
    assert guard.layers == ("embed",)
    expected = guard(**batch(9, 9)).regret
    longer = batch(9, 9, length=14)
    found = guard(*longer.values()) if by_position else guard(**longer)
    torch.testing.assert_close(found.regret, expected, rtol=1e-4, atol=1e-6)
    for number, (words, length) in enumerate(zip(*batch(9, 9).values(), strict=True)):
        alone = guard(words[None, :length], length[None])
        torch.testing.assert_close(alone.regret, expected[number : number + 1], rtol=1e-3, atol=1e-5)


def test_steps_as_many_as_the_longest_sample_has() -> None:
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 0, 0, 0]]).bool()
    found, longer = mask_of_length(nn.Identity(), mask, 3), mask_of_length(nn.Identity(), mask, 6)
    assert found is not None
    assert longer is not None
    assert torch.equal(found, mask[:, :3])
    assert torch.equal(longer, torch.cat([mask, torch.zeros(2, 1, dtype=torch.bool)], dim=1)), "padding of the model"
    assert mask_of_length(nn.Identity(), mask, 2) is None


def test_windows_count_where_no_padding_is_in_their_reach_and_every_sample_has_one() -> None:
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [0, 0, 1, 1, 1]]).bool()
    found = mask_of_length(nn.Identity(), mask, 3, reach=2)
    assert found is not None
    assert found.tolist() == [[True, True, False], [True, False, False], [False, False, True]]
    assert mask_of_length(nn.Identity(), mask, 4, reach=2) is None
