"""Models that mix the samples of a batch: layers in another order are left out, and other mixing is told."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

import pnml
from pnml.pytorch.dependence import UnstableModelWarning
from pnml.pytorch.head import HeadNotFoundError
from pnml.pytorch.layers import LayersNotFoundError, LayersNotFoundWarning

from .networks import CLASSES, rows, seeded

WORDS = 40
Batch = tuple[Tensor, Tensor]


class Sorting(nn.Module):
    """Sorts its samples by length for a packed sequence, as older code does, and puts them back before the head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.embed, self.rnn = nn.Embedding(WORDS, 8), nn.Linear(8, 8), nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def states(self, words: Tensor, lengths: Tensor) -> Batch:
        ordered, order = lengths.sort(descending=True, stable=True)
        packed = pack_padded_sequence(self.embed(self.first(words[order])), ordered, batch_first=True)
        return self.rnn(packed)[1][0], order.argsort()

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        states, back = self.states(words, lengths)
        logits: Tensor = self.head(states[back])
        return logits


class SortingLater(Sorting):
    """The same with a layer that is called before the samples are sorted."""

    def states(self, words: Tensor, lengths: Tensor) -> Batch:
        ordered, order = lengths.sort(descending=True, stable=True)
        packed = pack_padded_sequence(self.embed(self.first(words)[order]), ordered, batch_first=True)
        return self.rnn(packed)[1][0], order.argsort()


class BackTooLate(Sorting):
    """Puts the logits back, and not what enters the head."""

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        states, back = self.states(words, lengths)
        logits: Tensor = self.head(states)
        return logits[back]


def sentences(count: int, seed: int) -> Batch:
    lengths = torch.randint(2, 9, (count,), generator=seeded(seed))
    return torch.randint(1, WORDS, (count, 8), generator=seeded(seed + 50)), lengths


def fitted(model: nn.Module) -> pnml.Guard:
    return pnml.guard(model).fit([(*sentences(40, seed), torch.zeros(40)) for seed in range(4)], progress=False)


def test_layers_that_hold_other_samples_are_left_out() -> None:
    model = Sorting().double().eval()
    with pytest.warns(LayersNotFoundWarning, match=r"outputs of layers \['first', 'embed'\] .* depend on the other"):
        guard = fitted(model)
    words, lengths = sentences(9, 8)
    together = guard(words, lengths).regret
    alone = torch.cat([guard(words[[row]], lengths[[row]]).regret for row in range(9)])
    torch.testing.assert_close(alone, together, rtol=1e-9, atol=1e-12)


def test_layers_that_hold_their_own_samples_stay() -> None:
    guard = fitted(SortingLater().eval())
    assert guard.layers == ("first",)


def test_named_layers_that_hold_other_samples_are_refused() -> None:
    with pytest.raises(LayersNotFoundError, match="depend on the other samples of its batch, as where"):
        pnml.guard(Sorting(), layers=["embed"]).fit([sentences(40, 0)], progress=False)


def test_a_head_that_holds_other_samples_than_the_answers_is_refused() -> None:
    words, lengths = sentences(40, 0)
    order = lengths.argsort(descending=True, stable=True)  # as a loader of sorted batches yields them
    with pytest.raises(HeadNotFoundError, match="puts them back after the head: put them back before it"):
        pnml.guard(BackTooLate()).fit([(words[order], lengths[order])], progress=False)


class Experts(nn.Module):
    """Each sample is seen by one of two experts, by the sign of its first number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.experts = nn.Linear(8, 8), nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.last, self.head = nn.Linear(8, 16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y, found = self.first(x).tanh(), torch.zeros_like(x)
        for is_positive, expert in zip((True, False), self.experts, strict=True):
            chosen = ((x[:, 0] > 0) == is_positive).nonzero()[:, 0]
            found = found.index_add(0, chosen, expert(y[chosen]))
        logits: Tensor = self.head(self.last(found.tanh()).tanh())
        return logits


def test_an_expert_that_saw_all_of_a_few_samples_is_left_out_and_no_other_layer() -> None:
    first = rows(40)
    first[:3, 0] = 1  # by which layers are chosen
    guard = pnml.guard(Experts().double()).fit([first.double(), rows(40, 1).double()], progress=False)
    assert guard.layers == ("first", "last")
    x = rows(9, 8).double()
    alone = torch.cat([guard(x[[row]]).regret for row in range(9)])
    torch.testing.assert_close(alone, guard(x).regret, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match=r"layers \['experts.0'\] did not put out one entry per sample"):
        pnml.guard(Experts(), layers=["experts.0"]).fit([first, rows(40, 1)], progress=False)


@pytest.mark.parametrize("size", [1, 2])
def test_batches_of_one_or_two_samples_are_enough_to_tell(size: int) -> None:
    batches = list(torch.split(rows(40), size))
    model = nn.Sequential(nn.Linear(8, 16), MinusMean(), nn.Tanh(), nn.Linear(16, CLASSES))
    with pytest.warns(UnstableModelWarning, match="depends on the other samples"):
        pnml.guard(model).fit(batches, progress=False)
    pnml.guard(nn.Sequential(model[0], model[2], model[3])).fit(batches, progress=False)  # without a warning


class MinusMean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=0) / 2


class AlwaysDropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(8, 16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(functional.dropout(self.first(x).tanh(), 0.3))
        return logits


class AttendingToSamples(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(8, 16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        logits: Tensor = self.head((x @ x.T).softmax(dim=1) @ x)
        return logits


def test_a_model_that_answers_at_random_is_told() -> None:
    with pytest.warns(UnstableModelWarning, match=r"when it is run again.*training=self\.training"):
        guard = pnml.guard(AlwaysDropping()).fit([rows(60)], progress=False)
    assert guard.layers == ("first",)


def test_chance_that_enters_the_head_and_no_answer_is_told() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(8, 16), nn.Linear(32, CLASSES)
            self.head.weight.data[:, 16:] = 0

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x).tanh()
            logits: Tensor = self.head(torch.cat([x, torch.rand_like(x)], dim=1))
            return logits

    with pytest.warns(UnstableModelWarning, match="when it is run again"):
        pnml.guard(Noisy()).fit([rows(60)], progress=False)


@pytest.mark.parametrize(
    "model",
    [
        AttendingToSamples(),
        nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, CLASSES)),
    ],
)
def test_a_model_whose_answers_depend_on_the_other_samples_is_told(model: nn.Module) -> None:
    with pytest.warns(UnstableModelWarning, match="depends on the other samples of its batch"):
        pnml.guard(model).fit([rows(60)], progress=False)


def test_samples_in_the_second_axis_are_tried_there() -> None:
    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.rnn, self.head = nn.GRU(5, 8), nn.Linear(8, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(functional.dropout(self.rnn(x)[0][-1], 0.3))
            return logits

    with pytest.warns(UnstableModelWarning, match="when it is run again"):
        pnml.guard(Steps()).fit([torch.randn(7, 40, 5, generator=seeded())], progress=False)


def test_the_words_of_a_single_sample_are_no_samples(recwarn: pytest.WarningsRecorder) -> None:
    class EveryWord(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.embed, self.attend = nn.Embedding(WORDS, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.head = nn.Linear(8, CLASSES)

        def forward(self, words: Tensor) -> Tensor:
            logits: Tensor = self.head(self.attend(self.embed(words)))
            return logits

    texts = torch.randint(1, WORDS, (40, 12), generator=seeded())
    pnml.guard(EveryWord(), layers="last").fit([texts[:1], texts[1:]], progress=False)
    assert not [str(told.message) for told in recwarn if told.category is UnstableModelWarning]


def test_lack_of_memory_is_no_answer() -> None:
    class Hungry(AlwaysDropping):
        def forward(self, x: Tensor) -> Tensor:
            if len(x) == 8:
                raise torch.OutOfMemoryError
            return super().forward(x)

    with pytest.raises(torch.OutOfMemoryError):
        pnml.guard(Hungry()).fit([rows(60)], progress=False)
