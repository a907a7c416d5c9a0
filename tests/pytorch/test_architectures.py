"""The guard on models that people use: what it finds, and that a sample's regret is its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from torch import nn

import pnml
from pnml.pytorch.head import HeadNotFoundError

from .architectures import (
    ARCHITECTURES,
    DISTILLED,
    SQUEEZENET,
    Architecture,
    call,
    chosen,
    drawn,
    logits_of,
    longer,
    sentences,
)
from .lines import by_lines_of

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from pnml import Guard, Result

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated"),  # by transformers' DeBERTa
]
COUNT = 6
"""How many samples are scored."""


class Fitted(NamedTuple):
    """A guard of an architecture, and samples with their results."""

    architecture: Architecture
    guard: Guard
    batch: Any
    result: Result


class LowRank(nn.Module):
    """A linear layer with a trained update of low rank, as LoRA makes it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down, self.up = nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.base(x) + 4 * self.up(self.down(x))
        return z


class Tempered(nn.Module):
    """A classifier with a temperature, as calibration of its probabilities adds it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.temperature = model, nn.Parameter(torch.tensor(1.7))

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.model(x) / self.temperature
        return z


class OwnMask(nn.Module):
    """BERT behind an interface of its own: what marks the tokens that count is named ``keep``."""

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, tokens: Tensor, keep: Tensor) -> Tensor:
        return logits_of(self.bert(input_ids=tokens, attention_mask=keep))


def agree(left: Tensor, right: Tensor) -> None:
    torch.testing.assert_close(left, right, rtol=1e-6, atol=0)


def fit(guard: Guard, architecture: Architecture) -> Guard:
    return guard.fit([architecture.batch(16, seed) for seed in (0, 1)], progress=False)


def check_regrets_are_own(guard: Guard, batch: Any) -> None:
    """Assert that every sample has the same regret alone and in another order."""
    regret = call(guard, batch).regret
    for number in range(COUNT):
        agree(call(guard, chosen(batch, slice(number, number + 1))).regret[0], regret[number])
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    agree(call(guard, chosen(batch, order)).regret, regret[order])


@pytest.fixture(scope="module", params=ARCHITECTURES)
def fitted(request: pytest.FixtureRequest) -> Fitted:
    architecture = ARCHITECTURES[request.param]
    guard = fit(pnml.guard(drawn(architecture.build)), architecture)
    batch = architecture.batch(COUNT, 2)
    return Fitted(architecture, guard, batch, call(guard, batch))


def test_the_head_is_found_and_four_blocks_evenly_spaced_are_watched(fitted: Fitted) -> None:
    guard, blocks = fitted.guard, fitted.architecture.blocks
    assert guard.head_name == fitted.architecture.head
    assert all(re.fullmatch(blocks, name) for name in guard.layers), guard.layers
    names = [name for name, _ in guard.model.named_modules() if re.fullmatch(blocks, name)]
    if "#" in blocks:  # one block that is called four times
        names = [f"{names[0]}#{number}" if number else names[0] for number in range(4)]
    assert len(guard.layers) == 4
    for number, name in enumerate(guard.layers):
        assert names.index(name) == pytest.approx((number + 1) * len(names) / 4 - 1, abs=len(names) / 8), guard.layers


def test_the_regret_of_a_sample_is_the_same_in_any_company_order_and_padding(fitted: Fitted) -> None:
    check_regrets_are_own(fitted.guard, fitted.batch)
    if fitted.architecture.pad is not None:
        agree(call(fitted.guard, fitted.architecture.pad(fitted.batch)).regret, fitted.result.regret)


def test_logits_and_predictions_are_the_models_own(fitted: Fitted) -> None:
    with torch.no_grad():
        logits = logits_of(call(fitted.guard.model, fitted.batch))
    assert torch.equal(fitted.result.logits, logits)
    assert torch.equal(fitted.result.prediction, logits.argmax(dim=1))


def test_a_saved_guard_scores_alike_around_a_fresh_copy_of_the_model(fitted: Fitted, tmp_path: Path) -> None:
    fitted.guard.save(tmp_path / "detector.safetensors")
    loaded = pnml.guard(drawn(fitted.architecture.build)).load(tmp_path / "detector.safetensors")
    assert loaded.layers == fitted.guard.layers
    agree(call(loaded, fitted.batch).regret, fitted.result.regret)


VIT = ARCHITECTURES["vit"]


def test_a_head_with_an_update_of_low_rank_is_found() -> None:
    model: Any = drawn(VIT.build)
    model.heads.head = LowRank(model.heads.head).double()
    guard = fit(pnml.guard(model), VIT)
    assert guard.head_name == "heads.head"
    with torch.no_grad():
        assert torch.equal(guard(VIT.batch(COUNT, 2)).logits, model(VIT.batch(COUNT, 2)))
    check_regrets_are_own(guard, VIT.batch(COUNT, 2))


def test_a_temperature_after_the_head_is_declared_by_naming_the_head() -> None:
    model, batch = Tempered(drawn(VIT.build)).double().eval(), VIT.batch(COUNT, 2)
    with pytest.raises(HeadNotFoundError, match=re.escape("pnml.guard(model, head='model.heads.head')")):
        fit(pnml.guard(model), VIT)
    guard = fit(pnml.guard(model, head="model.heads.head"), VIT)
    with torch.no_grad():
        assert torch.equal(guard(batch).logits, model.model(batch))
        assert torch.equal(guard(batch).prediction, model(batch).argmax(dim=1))
    check_regrets_are_own(guard, batch)


@pytest.mark.filterwarnings("ignore:the model's answer is not what its head 'classifier.1' puts out")
def test_a_relu_after_the_head_is_declared_by_naming_the_head_and_its_reading() -> None:
    model: Any = drawn(SQUEEZENET.build)
    with pytest.raises(HeadNotFoundError, match=r"changed in place by 'classifier\.2'") as refusal:
        fit(pnml.guard(model), SQUEEZENET)
    guard = fit(by_lines_of(refusal.value, model), SQUEEZENET)
    assert (guard.head_name, model.classifier[2].inplace) == ("classifier.1", False)
    check_regrets_are_own(guard, SQUEEZENET.batch(COUNT, 2))
    with pytest.raises(HeadNotFoundError, match=re.escape("pnml.guard(model, head='classifier.1')")):
        fit(pnml.guard(model), SQUEEZENET)
    with pytest.raises(HeadNotFoundError, match=r"pnml\.guard\(model, head='classifier\.1'.*reading='mean'"):
        fit(pnml.guard(model, head="classifier.1"), SQUEEZENET)


def test_the_mean_of_two_heads_is_declared_by_the_lines_of_the_error() -> None:
    model: Any = drawn(DISTILLED.build)
    with pytest.raises(HeadNotFoundError, match="It is the mean of several heads") as refusal:
        fit(pnml.guard(model), DISTILLED)
    guard = fit(by_lines_of(refusal.value, model), DISTILLED)
    with torch.no_grad():
        logits = model(DISTILLED.batch(COUNT, 2))
    agree(guard(DISTILLED.batch(COUNT, 2)).logits, logits)
    check_regrets_are_own(guard, DISTILLED.batch(COUNT, 2))


def test_a_mask_under_a_name_of_its_own_is_asked_about_and_declared() -> None:
    model = OwnMask(drawn(ARCHITECTURES["Bert"].build))

    def batch(seed: int, pad: Any = dict) -> Any:
        return dict(zip(("tokens", "keep"), pad(sentences(COUNT, seed)).values(), strict=True))

    with pytest.raises(ValueError, match=r"pnml\.guard\(model, mask='keep'\).*mask=None"):
        pnml.guard(model).fit([batch(0), batch(1)], progress=False)
    guard = pnml.guard(model, mask="keep").fit([batch(0), batch(1)], progress=False)
    assert guard.layers == tuple(f"bert.bert.encoder.layer.{number}" for number in range(4))
    agree(guard(**batch(2, longer)).regret, guard(**batch(2)).regret)
    check_regrets_are_own(guard, batch(2))
