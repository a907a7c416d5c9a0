"""Which tokens count, and that a sample's regret is its own: alone, in company, in another order, without padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import pnml
from pnml.pytorch.head import HeadNotFoundError
from pnml.pytorch.layers import LayersNotFoundError
from pnml.pytorch.steadiness import UnstableModelWarning

from .networks import CLASSES, CNN, FEATURES, Encoder, Tokens, bert, images, mlp, rows, sequences, texts

if TYPE_CHECKING:
    from pathlib import Path

LENGTH = 10


def marks(name: str, lengths: Tensor, length: int = LENGTH) -> dict[str, Tensor]:
    """An argument of some name for texts of these lengths."""
    counts = torch.arange(length) < lengths[:, None]
    if name == "lengths":
        return {name: lengths}
    return {name: ~counts if "padding" in name else counts.long()}


NAMES = ["attention_mask", "mask", "key_padding_mask", "src_key_padding_mask", "padding_mask", "lengths"]


@pytest.mark.parametrize("name", [*NAMES, "keep"])
def test_padding_changes_no_score(name: str, tmp_path: Path) -> None:
    model = Tokens(name).double()
    tokens, lengths = texts(40)
    options: dict[str, Any] = {} if name in NAMES else {"mask": name}
    guard = pnml.guard(model, **options).fit([{"input_ids": tokens, **marks(name, lengths)}], progress=False)
    assert guard.layers == ("words", "first", "second")
    fresh, lengths = texts(8, seed=1)
    result = guard(fresh, **marks(name, lengths))
    guard.save(tmp_path / "detector.safetensors")
    loaded = pnml.guard(model, **options).load(tmp_path / "detector.safetensors")
    for row, size in enumerate(lengths):
        alone = loaded(fresh[row : row + 1, :size], **marks(name, lengths[row : row + 1], int(size)))
        torch.testing.assert_close(alone.regret[0], result.regret[row], rtol=1e-6, atol=1e-12)
    assert torch.equal(result.logits, model(fresh, **marks(name, lengths)))


def test_a_function_may_say_which_tokens_count(tmp_path: Path) -> None:
    model = Tokens("attention_mask").double()
    tokens, lengths = texts(40)
    batch = {"input_ids": tokens, **marks("attention_mask", lengths)}
    expected = pnml.guard(model).fit([batch], progress=False)

    def counting(**given: Tensor) -> Tensor:
        return given["attention_mask"] == 1

    guard = pnml.guard(model, mask=counting).fit([batch], progress=False)
    assert torch.equal(guard(**batch).regret, expected(**batch).regret)
    guard.save(tmp_path / "detector.safetensors")
    with pytest.raises(ValueError, match="fitted with a function as mask=: pass that again"):
        pnml.guard(model).load(tmp_path / "detector.safetensors")(**batch)
    with pytest.raises(ValueError, match=r"mask= must return booleans of shape \(n, T\)"):
        pnml.guard(model, mask=lambda **_: tokens).fit([batch], progress=False)


def test_an_argument_that_looks_like_a_mask_is_asked_about() -> None:
    tokens, lengths = texts(40)
    batch = {"input_ids": tokens, **marks("keep", lengths)}
    with pytest.raises(ValueError, match=r"argument 'keep' of shape \(40, 10\).*mask='keep'\).*say mask=None"):
        pnml.guard(Tokens("keep")).fit([batch], progress=False)
    with pytest.raises(ValueError, match="mask='other' is no tensor among the model's arguments"):
        pnml.guard(Tokens("keep"), mask="other").fit([batch], progress=False)
    batch["token_type_ids"] = batch.pop("keep")  # in use, and no mask
    assert pnml.guard(Tokens("x", padding_idx=0)).fit([batch], progress=False).layers


def test_a_mask_that_the_model_ignores_is_said() -> None:
    tokens, lengths = texts(40)
    batch = {"input_ids": tokens, **marks("attention_mask", lengths)}
    with pytest.warns(UnstableModelWarning, match="depends on its padding"):
        pnml.guard(Tokens("none", padding_idx=40)).fit([batch], progress=False)


@pytest.mark.parametrize("batch_first", [True, False])
def test_padding_of_an_encoder_changes_no_score(batch_first: bool) -> None:  # noqa: FBT001
    model = Encoder(batch_first=batch_first).double().eval()
    guard = pnml.guard(model).fit([sequences(40, seed=seed).double() for seed in range(4)], progress=False)
    assert len(guard.layers) == 4
    x = sequences(9, seed=9).double()
    padded = torch.cat([x, torch.full((9, 4, 5), 50.0)], dim=1)
    mask = torch.zeros(9, 11, dtype=torch.bool)
    mask[:, 7:] = True
    masked = pnml.guard(model).fit([{"x": padded, "padding_mask": mask}], progress=False)
    found, expected = masked(padded, mask), masked(x, torch.zeros(9, 7, dtype=torch.bool))
    torch.testing.assert_close(found.regret, expected.regret, rtol=1e-6, atol=1e-9)
    assert len(masked.layers) == 4
    assert torch.backends.mha.get_fastpath_enabled()


def test_padding_of_a_text_model_changes_no_score() -> None:
    tokens, lengths = texts(40)
    batch = {"input_ids": tokens, **marks("attention_mask", lengths)}
    model = bert().double()
    guard = pnml.guard(model).fit([batch, batch], progress=False)
    assert guard.layers == ("bert.encoder.layer.0", "bert.encoder.layer.1")
    result = guard(**batch)
    size = int(lengths[0])
    alone = guard(input_ids=tokens[:1, :size], attention_mask=batch["attention_mask"][:1, :size])
    torch.testing.assert_close(alone.regret, result.regret[:1], rtol=1e-6, atol=1e-12)


class Attentive(nn.Module):
    """Attention over the samples of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner(x + (x @ x.T).softmax(dim=1) @ x)
        return logits


class Noisy(nn.Module):
    """Dropout that stays on in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner(functional.dropout(x, 0.5))
        return logits


@pytest.mark.parametrize(("model", "said"), [(Attentive(), "depends on the other samples"), (Noisy(), "run again")])
def test_answers_that_are_not_a_samples_own_are_said(model: nn.Module, said: str) -> None:
    with pytest.warns(UnstableModelWarning, match=said):
        pnml.guard(model).fit([rows(40)], progress=False)


class Sorting(nn.Module):
    """Sorts its samples by length for a layer, and puts them back before the head, or after it."""

    def __init__(self, *, late: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.sorted, self.steady = nn.Linear(8, 8), nn.Linear(8, 8)
        self.head, self.late = nn.Linear(8, CLASSES), late

    def forward(self, x: Tensor) -> Tensor:
        order = x.norm(dim=1).argsort()
        back = order.argsort()
        x = self.sorted(x[order]).tanh()
        x = x if self.late else x[back]
        x = self.head(self.steady(x).tanh())
        return x[back] if self.late else x


def test_layers_of_sorted_samples_are_left_out() -> None:
    guard = pnml.guard(Sorting(late=False)).fit([rows(40)], progress=False)
    assert guard.layers == ("steady", "input")
    with pytest.raises(LayersNotFoundError, match=r"layers \['sorted'\] for a sample depend on the other samples"):
        pnml.guard(Sorting(late=False), layers=["sorted"]).fit([rows(40)], progress=False)
    with pytest.raises(HeadNotFoundError):
        pnml.guard(Sorting(late=True)).fit([rows(40)], progress=False)


class Branches(nn.Module):
    """Answers by one layer or by another."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.early, self.last = nn.Linear(8, FEATURES), nn.Linear(FEATURES, 5), nn.Linear(FEATURES, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).tanh()
        early, last = self.early(x), self.last(x)
        logits: Tensor = early if len(x) == 20 else last
        return logits


def test_a_model_that_answers_by_another_layer_is_refused_at_the_call() -> None:
    guard = pnml.guard(Branches()).fit([rows(40)], progress=False)
    assert guard.head_name == "last"
    with pytest.raises(HeadNotFoundError, match="stops early answers by one layer or another"):
        guard(rows(20))


@pytest.mark.parametrize("make", [mlp, CNN, Encoder])
def test_a_samples_regret_is_its_own(make: Any) -> None:
    model = make().double().eval()
    data: Any = {mlp: rows, CNN: images, Encoder: sequences}[make]
    guard = pnml.guard(model).fit([data(100).double()], progress=False)
    fresh = data(12, seed=1).double()
    together = guard(fresh).regret
    alone = torch.cat([guard(x[None]).regret for x in fresh])
    for regret in (alone, guard(fresh.flip(0)).regret.flip(0)):
        torch.testing.assert_close(regret, together, rtol=1e-6, atol=1e-12)
