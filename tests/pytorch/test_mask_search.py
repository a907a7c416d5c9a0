"""Models of one's own: what they leave out is found by asking them, and scores do not depend on padding."""

from __future__ import annotations

from collections import UserDict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import pnml
from pnml.pytorch.head import logits_of
from pnml.pytorch.mask_search import find_mask_source
from pnml.pytorch.token_mask import MaskSource, declared_padding, token_mask

from .networks import CLASSES, images, rows, seeded

if TYPE_CHECKING:
    from pathlib import Path

WORDS = 40


class Mean(nn.Module):
    """Blocks on words, and the mean of those that count."""

    def __init__(self, *, padding: int = 0, padding_idx: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.padding = nn.Embedding(WORDS, 8, padding_idx=padding_idx), padding
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        return self.of_counting(words, words != self.padding)

    def of_counting(self, words: Tensor, counts: Tensor) -> Tensor:
        x = words if words.is_floating_point() else self.embed(words)
        share = (counts / counts.sum(dim=1, keepdim=True))[:, :, None]
        logits: Tensor = self.head((self.blocks(x) * share).sum(dim=1))
        return logits


class WithMask(Mean):
    def forward(self, words: Tensor, mask: Tensor, kinds: Tensor | None = None) -> Tensor:  # type: ignore[override]
        logits = self.of_counting(words, mask)
        return logits if kinds is None else logits + 0 * kinds.sum()


class WithPadding(Mean):
    def forward(self, words: Tensor, is_empty: Tensor) -> Tensor:  # type: ignore[override]
        return self.of_counting(words, ~is_empty)


class WithSpread(Mean):
    """Takes a mask as attention does, (n, 1, T) or (n, 1, 1, T)."""

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return self.of_counting(words, mask.flatten(1) == (0 if mask.is_floating_point() else 1))


class Attention(Mean):
    """Layers of PyTorch's own, and the first token."""

    def __init__(self) -> None:
        super().__init__()
        encoder = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(encoder, 2)

    def forward(self, words: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(self.embed(words), src_key_padding_mask=words == 0)[:, 0])
        return logits


class Recurrent(Mean):
    """Counts its words, and takes the mean of its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.GRU(8, 8, batch_first=True)

    def forward(self, words: Tensor) -> Tensor:
        lengths = (words != 0).sum(dim=1)
        packed = pack_padded_sequence(self.embed(words), lengths.cpu(), batch_first=True, enforce_sorted=False)
        steps, _ = pad_packed_sequence(self.steps(packed)[0], batch_first=True)
        logits: Tensor = self.head(steps.sum(dim=1) / lengths[:, None])
        return logits


class Windows(Mean):
    """Convolutions of two, three and four words, of which each takes the largest output with no word of padding."""

    def __init__(self, padding_idx: int | None = None) -> None:
        super().__init__(padding_idx=padding_idx)
        self.windows = nn.ModuleList(nn.Sequential(nn.Conv1d(8, 6, size), nn.ReLU()) for size in (2, 3, 4))
        self.head = nn.Linear(18, CLASSES)

    def forward(self, words: Tensor) -> Tensor:
        x, padding = self.embed(words).transpose(1, 2), words == 0
        found = [window(x) for window in self.windows]
        ends = [padding[:, size - 1 :] for size in (2, 3, 4)]
        largest = [y.masked_fill(end[:, None], 0).amax(dim=2) for y, end in zip(found, ends, strict=True)]
        logits: Tensor = self.head(torch.cat(largest, dim=1))
        return logits


class EveryWord(Mean):
    """Answers for every word, each of which sees the mean of those that count."""

    def forward(self, words: Tensor) -> Tensor:
        x, counts = self.blocks(self.embed(words)), (words != 0)[:, :, None]
        logits: Tensor = self.head(x + (x * counts).sum(dim=1, keepdim=True) / counts.sum(dim=1, keepdim=True))
        return logits


def words(count: int, seed: int = 0, *, length: int = 9, after: int = 0, padding: int = 0) -> Tensor:
    found = torch.randint(4, WORDS, (count, length), generator=seeded(seed))
    return torch.cat([found, torch.full((count, after), padding)], dim=1)


def added(words: Tensor) -> Tensor:
    """Return a mask that is added to attention."""
    return torch.zeros(words.shape).masked_fill(words == 0, torch.finfo(torch.float32).min)


def plain(given: Tensor) -> dict[str, Tensor]:
    return {"words": given}


CASES: list[tuple[nn.Module, Any, MaskSource]] = [
    (Mean(), plain, MaskSource(token=0)),
    (Mean(padding=3, padding_idx=3), plain, MaskSource(token=3)),
    (Attention(), plain, MaskSource(token=0)),
    (Recurrent(), plain, MaskSource(token=0)),
    (Windows(), plain, MaskSource(token=0)),
    (WithMask(), lambda x: {"words": x, "mask": (x != 0).long()}, MaskSource("mask")),
    (WithMask(), lambda x: {"words": x, "mask": (x != 0).float(), "kinds": x % 2}, MaskSource("mask")),
    (WithMask(), lambda x: {"words": torch.sin(x[:, :, None] + torch.arange(8.0)), "mask": x != 0}, MaskSource("mask")),
    (WithPadding(), lambda x: {"words": x, "is_empty": x == 0}, MaskSource("is_empty", marks_padding=True)),
    (WithSpread(), lambda x: {"words": x, "mask": (x != 0)[:, None]}, MaskSource("mask")),
    (WithSpread(), lambda x: {"words": x, "mask": (x != 0).long()[:, None, None]}, MaskSource("mask")),
    (WithSpread(), lambda x: {"words": x, "mask": added(x)}, MaskSource("mask", marks_padding=True)),
    (WithSpread(), lambda x: {"words": x, "mask": added(x)[:, None, None]}, MaskSource("mask", marks_padding=True)),
]


@pytest.mark.parametrize(("model", "inputs", "source"), CASES, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("by_position", [False, True])
def test_what_a_model_leaves_out_does_not_change_its_scores(
    model: nn.Module, inputs: Any, source: MaskSource, *, by_position: bool, tmp_path: Path
) -> None:
    def batch(*args: int, **kwargs: int) -> Any:
        given = inputs(words(*args, padding=source.token or 0, **kwargs))
        return tuple(given.values()) if by_position else given

    def call(guard: pnml.Guard, given: Any) -> Tensor:
        result = guard(*given) if by_position else guard(**given)
        regret: Tensor = result.regret
        return regret

    def as_inputs(given: Any) -> Any:
        return given

    guard = pnml.guard(model.eval(), inputs=as_inputs).fit([batch(60, n, after=n) for n in range(4)], progress=False)
    assert guard.mask_source == source
    assert guard.layers
    found, expected = call(guard, batch(7, 9, after=12)), call(guard, batch(7, 9))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)
    guard.save(tmp_path / "guard.safetensors")
    again = pnml.guard(model, inputs=as_inputs).load(tmp_path / "guard.safetensors")
    call(again, batch(2, 5, length=4))  # by which it is found again
    assert again.mask_source == source
    torch.testing.assert_close(call(again, batch(7, 9, after=12)), expected, rtol=1e-3, atol=1e-6)


class AnyNumber(Mean):
    """Takes words and their kinds as ``*args``, and a mask after them or by name."""

    def forward(self, *given: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        words, kinds, *masks = given
        logits = self.of_counting(words, masks[0] if attention_mask is None else attention_mask)
        return logits + 0 * kinds.sum()


def test_arguments_without_names_of_their_own_are_told_by_their_number() -> None:
    guard = pnml.guard(AnyNumber().eval(), inputs=lambda batch: batch)
    guard.fit([(x, x % 2, x != 0) for x in (words(60, n, after=n) for n in range(4))], progress=False)
    assert guard.mask_source == MaskSource("args[2]")
    short, padded = (guard(x, x % 2, x != 0).regret for x in (words(7, 9), words(7, 9, after=12)))
    torch.testing.assert_close(short, padded, rtol=1e-3, atol=1e-6)


def test_arguments_without_names_of_their_own_do_not_take_those_of_others() -> None:
    x = words(5, after=2)
    mask = token_mask(AnyNumber(), (x, x % 2), {"attention_mask": x != 0})
    assert mask is not None
    assert torch.equal(mask, x != 0)
    assert token_mask(AnyNumber(), (x, x % 2), {}) is None


class TakesDict(WithMask):
    """Takes a batch whole, with its labels."""

    def forward(self, batch: dict[str, Tensor]) -> Tensor:  # type: ignore[override]
        return self.of_counting(batch["words"], batch[self.mask])

    def __init__(self, mask: str) -> None:
        super().__init__()
        self.mask = mask


@pytest.mark.parametrize("mask", ["attention_mask", "counts"])
@pytest.mark.parametrize("kind", [dict, UserDict])
def test_a_dict_that_a_model_takes_whole_is_looked_into(kind: type[Any], mask: str, tmp_path: Path) -> None:
    def batch(*args: int, **kwargs: int) -> Any:
        x = words(*args, **kwargs)
        return kind({"labels": torch.zeros(len(x)), "words": x, mask: x != 0})

    guard = pnml.guard(TakesDict(mask).eval(), inputs=lambda batch: (batch,))
    guard.fit([batch(60, n, after=n) for n in range(4)], progress=False)
    assert guard.layers
    expected = guard(batch(7, 9)).regret
    torch.testing.assert_close(guard(batch(7, 9, after=12)).regret, expected, rtol=1e-3, atol=1e-6)
    guard.save(tmp_path / "guard.safetensors")
    again = pnml.guard(guard.model).load(tmp_path / "guard.safetensors")
    torch.testing.assert_close(again(batch(7, 9, after=12)).regret, expected, rtol=1e-3, atol=1e-6)


class Sound(nn.Module):
    """Convolutions of sound, (n, C, T) or (n, 1, C, T), and the mean of the frames that count."""

    def __init__(self, channels: int = 6) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv1d(channels, 8, 3, padding=1), nn.Conv1d(8, 8, 1)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.of_counting(x.flatten(1, -2), torch.arange(x.shape[-1]) < lengths[:, None])

    def of_counting(self, x: Tensor, counts: Tensor) -> Tensor:
        share = (counts / counts.sum(dim=1, keepdim=True))[:, None]
        x = self.second(self.first(x * counts[:, None]).relu()).relu()
        logits: Tensor = self.head((x * share).sum(dim=2))
        return logits


class SoundWithMask(Sound):
    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        return self.of_counting(x, counts)


@pytest.mark.parametrize(
    ("model", "source"),
    [
        (Sound(), MaskSource(length_axis=2)),
        (Sound(30), MaskSource(length_axis=2)),  # more than there are frames
        (Sound(1), MaskSource(length_axis=2)),
        (SoundWithMask(), MaskSource("counts")),
    ],
)
def test_frames_of_sound_come_last(model: Sound, source: MaskSource, tmp_path: Path) -> None:
    def batch(count: int, seed: int, padding: int = 0) -> tuple[Tensor, Tensor]:
        lengths = torch.randint(3, 13, (count,), generator=seeded(seed))
        x = torch.randn(count, model.first.in_channels, 12, generator=seeded(seed + 50))
        counts = torch.arange(12 + padding) < lengths[:, None]
        x = nn.functional.pad(x, (0, padding)) * counts[:, None]
        return x, counts if isinstance(model, SoundWithMask) else lengths

    guard = pnml.guard(model, inputs=tuple).fit([batch(40, seed, padding=seed) for seed in range(4)], progress=False)
    assert guard.mask_source == source
    assert guard.layers[0] == "first"
    expected = guard(*batch(7, 9)).regret
    torch.testing.assert_close(guard(*batch(7, 9, padding=30)).regret, expected, rtol=1e-3, atol=1e-6)
    guard.save(tmp_path / "guard.safetensors")
    again = pnml.guard(model).load(tmp_path / "guard.safetensors")
    torch.testing.assert_close(again(*batch(7, 9, padding=1)).regret, expected, rtol=1e-3, atol=1e-6)


def test_lengths_that_are_those_of_no_axis_say_nothing_of_tokens() -> None:
    x, lengths = torch.randn(8, 6, 12, generator=seeded()), 10 * torch.tensor([4, 12, 6, 9, 8, 7, 5, 11])
    source = find_mask_source(Sound(), (x, lengths), {}, logits_of)
    assert source == MaskSource(length_axis=-1)
    assert token_mask(Sound(), (x, lengths), {}, source) is None


def test_lengths_are_those_of_the_last_axis_of_a_spectrogram() -> None:
    x, lengths = torch.randn(8, 1, 6, 12, generator=seeded()), torch.tensor([4, 12, 6, 9, 8, 7, 5, 11])
    source = find_mask_source(Sound(), (x, lengths), {}, logits_of)
    assert source == MaskSource(length_axis=3)
    mask = token_mask(Sound(), (x, lengths), {}, source)
    assert mask is not None
    assert torch.equal(mask.sum(dim=1), lengths)


def test_a_mask_of_floats_is_one_of_ones_or_is_added_to_attention() -> None:
    x = torch.tensor([[5, 6, 0], [7, 0, 0]])
    for mask in ((x != 0).float(), added(x), added(x)[:, None, None]):
        found = token_mask(WithSpread(), (), {"words": x, "attention_mask": mask})
        assert found is not None
        assert torch.equal(found, x != 0)


def test_a_mask_of_floats_says_the_same_of_a_sample_in_any_company() -> None:
    mask = torch.tensor([[1.0, 1, 0], [0, 0, 0]])  # the second one of ones for no token, or of no padding
    both, alone = (token_mask(WithSpread(), (), {"attention_mask": x}) for x in (mask, mask[1:]))
    assert both is not None
    assert alone is not None
    assert torch.equal(both[1:], alone)


def test_convolutions_of_words_are_watched_where_no_padding_is_in_their_reach() -> None:
    guard = pnml.guard(Windows().eval()).fit([words(60, n, after=n) for n in range(4)], progress=False)
    assert guard.found_layers is not None
    assert {layer.reach for layer in guard.found_layers} >= {1, 2, 3}


class SeesAll(Windows):
    """The same with padding among the words."""

    def forward(self, words: Tensor) -> Tensor:
        x = self.embed(words).transpose(1, 2)
        logits: Tensor = self.head(torch.cat([window(x).amax(dim=2) for window in self.windows], dim=1))
        return logits


@pytest.mark.parametrize("model", [Windows(), SeesAll(padding_idx=0)], ids=["without padding", "with it"])
@pytest.mark.parametrize("longest", [9, 10, 11, 12])
def test_convolutions_are_watched_also_where_the_first_texts_are_as_long_as_their_output(
    model: nn.Module, longest: int
) -> None:
    texts = words(60, length=12)
    texts[:3, longest:] = 0
    guard = pnml.guard(model.eval()).fit([texts], progress=False)
    assert {layer.reach for layer in guard.found_layers or ()} == {0, 1, 2, 3}
    assert guard(words(5, 1, length=15)).leverage_by_layer.shape == (5, 5)


class Pooled(Mean):
    """Joins its words two by two, padding along with them, and takes the mean of all."""

    def __init__(self) -> None:
        super().__init__(padding_idx=0)
        self.body = nn.Sequential(nn.Conv1d(8, 8, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(8, 8, 1))

    def forward(self, words: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(self.embed(words).transpose(1, 2)).mean(dim=2))
        return logits


@pytest.mark.parametrize("layers", ["auto", ["embed", "body.0", "body"]])
@pytest.mark.parametrize(("length", "longest"), [(20, 20), (20, 10), (40, 20)])
def test_joined_words_are_watched_in_texts_of_any_length(layers: Any, length: int, longest: int) -> None:
    texts = words(60, length=length)
    texts[:3, longest:] = 0
    guard = pnml.guard(Pooled().eval(), layers=layers).fit([texts], progress=False)
    assert len(guard.layers) > 2
    assert guard(words(5, 1, length=16)).leverage_by_layer.shape == (5, 1 + len(guard.layers))


def test_padding_is_not_learnt_where_every_word_has_an_answer() -> None:
    guard = pnml.guard(EveryWord().eval(), layers="last").fit([words(30, n, after=n) for n in range(4)], progress=False)
    assert guard.mask_source == MaskSource(token=0)
    assert guard.fitted().correlation.count == 4 * 30 * 9


class LastStep(Mean):
    """Sees padding: a recurrent network that takes its last step, whatever that is."""

    def __init__(self, padding_idx: int | None = None) -> None:
        super().__init__(padding_idx=padding_idx)
        self.steps = nn.GRU(8, 8, batch_first=True)

    def forward(self, words: Tensor, kinds: Tensor | None = None) -> Tensor:
        x = self.embed(words) if kinds is None else self.embed(words) + kinds[:, :, None]
        logits: Tensor = self.head(self.steps(x)[0][:, -1])
        return logits


class Table(nn.Module):
    """Takes columns of categories, always as many."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, 4), nn.Linear(9 * 4, CLASSES)

    def forward(self, columns: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embed(columns).flatten(1))
        return logits


def test_padding_that_nobody_declares_is_the_token_that_most_samples_end_in() -> None:
    guard = pnml.guard(Mean(padding=2).double().eval())
    guard.fit([words(60, n, after=n, padding=2) for n in range(1, 4)], progress=False)
    assert guard.mask_source == MaskSource(token=2)
    short, padded = (guard(words(7, 9, after=n, padding=2)).regret for n in (0, 12))
    torch.testing.assert_close(short, padded, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (LastStep(), (words(5),)),
        (LastStep(), (words(5), words(5) % 2)),
        (Table(), (words(5),)),
        (nn.Linear(4, CLASSES), (rows(5, 4),)),
        (nn.Flatten(), (images(5),)),
        (Mean(), (words(5)[:0],)),
        (Mean(), ()),
    ],
)
def test_nothing_is_found_where_nothing_is_left_out(model: nn.Module, args: tuple[Any, ...]) -> None:
    assert find_mask_source(model.eval(), args, {}, logits_of) is None


def test_declared_padding_is_left_out_of_layers_even_where_the_model_sees_it() -> None:
    guard = pnml.guard(LastStep(padding_idx=3).eval())
    guard.fit([words(60, n, after=n, padding=3) for n in range(4)], progress=False)
    assert guard.mask_source == MaskSource(token=3)
    assert guard.layers
    with torch.no_grad():
        short, padded = (guard.run((words(7, 9, after=n, padding=3),), {}) for n in (0, 12))
    for x, y in zip(short.features, padded.features, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-6)


def test_padding_is_declared_by_the_configuration_or_by_embeddings_that_agree() -> None:
    model = nn.Sequential(nn.Embedding(9, 2, padding_idx=3), nn.Embedding(9, 2), nn.Embedding(9, 2, padding_idx=3))
    assert declared_padding(model) == 3
    model.append(nn.Embedding(9, 2, padding_idx=0))
    assert declared_padding(model) is None
    model.config = SimpleNamespace(pad_token_id=5)  # type: ignore[assignment]
    assert declared_padding(model) == 5


def test_lack_of_memory_is_no_answer() -> None:
    class Full(Mean):
        def forward(self, words: Tensor) -> Tensor:
            raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError):
        find_mask_source(Full(), (words(5),), {}, logits_of)
