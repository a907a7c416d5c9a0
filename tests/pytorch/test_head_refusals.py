"""Models that must not be taken for softmax classifiers, and what their refusal says would be right."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import pnml
from pnml.pytorch.finding import find_head
from pnml.pytorch.head import HeadNotFoundError

from .classifiers import Then, body
from .networks import CLASSES, FEATURES, bert, images, rows, sentences
from .test_summed_heads import Ensemble

if TYPE_CHECKING:
    from collections.abc import Callable

WAY_OUT = r"pnml\.guard\(model, head=\(weight, bias\), embed=lambda model, x: model\.features\(x\)\)"


@pytest.mark.parametrize("named", [None, "head"])
@pytest.mark.parametrize("ending", [torch.sigmoid, nn.Sigmoid(), lambda z: torch.sigmoid(z / 2)])
def test_independent_labels_are_not_taken_for_classes(ending: Callable[[Tensor], Tensor], named: str | None) -> None:
    torch.manual_seed(0)
    model = Then(body(), nn.Linear(FEATURES, CLASSES), ending)
    with pytest.raises(HeadNotFoundError, match=r"(?s)5 independent labels.*pnml\.guard\(model, task='multilabel'\)"):
        find_head(model, (rows(20),), named=named)


def test_a_config_that_says_multilabel_or_regression_is_believed() -> None:
    batch = {name: part for name, part in sentences(8).items() if name != "labels"}
    model = bert()
    model.config.problem_type = "multi_label_classification"
    with pytest.raises(HeadNotFoundError, match=r"(?s)its config says so.*task='multilabel'"):
        find_head(model, (), batch)
    assert find_head(model, (), batch, task="multilabel").name == "classifier"
    model.config.problem_type = "regression"
    with pytest.raises(HeadNotFoundError, match="a regression, which has no regret"):
        find_head(model, (), batch)


def test_a_softmax_is_no_answer_about_independent_labels() -> None:
    model = Then(body(), nn.Linear(FEATURES, CLASSES), nn.Softmax(dim=1))
    with pytest.raises(HeadNotFoundError, match="task='multilabel' was given, and the model ends in softmax"):
        find_head(model, (rows(20),), task="multilabel")


@pytest.mark.parametrize("named", [None, "networks.1.1"])
@pytest.mark.parametrize(
    "combine",
    [
        pytest.param(lambda z: z.softmax(dim=2).mean(dim=0), id="mean of probabilities"),
        pytest.param(lambda z: z.softmax(dim=2).mean(dim=0).log(), id="logarithm of the mean"),
    ],
)
def test_an_ensemble_is_not_taken_for_one_of_its_members(
    combine: Callable[[Tensor], Tensor], named: str | None
) -> None:
    match = rf"(?s)networks\.0\.1.*not one linear classifier.*for member in.*{WAY_OUT}"
    with pytest.raises(HeadNotFoundError, match=match):
        find_head(Ensemble(combine), (rows(20),), named=named)


def test_a_scripted_model_is_refused_with_the_way_out_and_takes_it() -> None:
    torch.manual_seed(0)
    jit: Any = torch.jit
    plain = nn.Sequential(body(), nn.Linear(FEATURES, CLASSES)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted, traced = jit.script(plain), jit.trace(plain, rows(2))
    exported = torch.export.export(plain, (rows(50),)).module()
    for closed in (scripted, traced, exported):
        with pytest.raises(HeadNotFoundError, match=rf"(?s)scripted, traced or exported.*{WAY_OUT}"):
            pnml.guard(closed).fit([rows(50)], progress=False)
    layer = getattr(scripted, "1")
    guard = pnml.guard(scripted, head=(layer.weight, layer.bias), embed=lambda model, x: getattr(model, "0")(x))
    found = guard.fit([rows(50)], progress=False)(rows(5, seed=1))
    expected = pnml.guard(plain, layers="last").fit([rows(50)], progress=False)(rows(5, seed=1))
    torch.testing.assert_close(found.regret, expected.regret, rtol=1e-4, atol=1e-6)


def test_a_scripted_backbone_is_no_obstacle() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, CLASSES)).eval()
    expected = pnml.guard(plain, layers="last").fit([rows(50)], progress=False)(rows(5, seed=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        plain[0] = torch.jit.script(plain[0])
    found = pnml.guard(plain).fit([rows(50)], progress=False)
    assert found.layers
    assert "0" not in found.layers
    assert torch.equal(found(rows(5, seed=1)).prediction, expected.prediction)


def test_a_quantised_head_is_read_by_probing() -> None:
    torch.manual_seed(0)
    layer, quantization = nn.Linear(FEATURES, CLASSES), import_module("torch.ao.quantization")
    plain = nn.Sequential(body(), layer).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantised = quantization.quantize_dynamic(plain, {nn.Linear}, dtype=torch.qint8)
        guard = pnml.guard(quantised, layers="last").fit([rows(200)], progress=False)
    assert "affine" in repr(guard)
    step = float(layer.weight.detach().abs().max()) / 127
    found = torch.from_numpy(guard.fitted().weight)
    assert float((found - layer.weight.detach().double()).abs().max()) < step, "the integers that it multiplies with"


def test_pixels_after_an_activation_are_refused() -> None:
    squeezed = nn.Sequential(nn.Conv2d(3, CLASSES, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(HeadNotFoundError, match=WAY_OUT):
        find_head(squeezed, (images(4),))


def test_too_little_memory_to_probe_a_layer_is_no_reason_to_refuse_it() -> None:
    class Large(nn.Module):
        """A head that is no nn.Linear, and runs out of memory for more than a batch."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(CLASSES, FEATURES))

        def forward(self, x: Tensor) -> Tensor:
            if torch.equal(x, torch.eye(FEATURES)):
                raise torch.OutOfMemoryError("too many unit vectors")
            return x @ self.weight.T

    with pytest.raises(torch.OutOfMemoryError, match="too many unit vectors"):
        find_head(nn.Sequential(body(), Large()), (rows(20),))


def test_one_number_a_sample_is_not_taken_for_one_sample_without_an_axis() -> None:
    class Pairs(nn.Module):
        """A factorisation machine: its answer is a product."""

        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(20, 6)

        def forward(self, x: Tensor) -> Tensor:
            answer: Tensor = self.embed(x).prod(dim=1).sum(dim=1)
            return answer

    with pytest.raises(HeadNotFoundError, match=r"no linear layer has the model's logits, of shape \(9,\)"):
        pnml.guard(Pairs()).fit([torch.zeros(9, 4, dtype=torch.long)], progress=False)


@pytest.mark.parametrize("combine", [lambda z: z / 2, lambda z: 0.25 * z + 0.75 * z.tanh()])
def test_a_single_sample_whose_mirror_image_the_model_does_not_take_is_said_to_be_too_little(
    combine: Callable[[Tensor], Tensor],
) -> None:
    class Categories(nn.Module):
        """Takes rows whose first column alone is the number of a category."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.embed, self.head = nn.Embedding(4, 8), nn.Linear(10, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            row = torch.cat([self.embed(x[:, 0].long()), x[:, 1:]], dim=1)
            return combine(self.head(row))

    with pytest.raises(HeadNotFoundError, match="the batch has one sample, which may be too few"):
        find_head(Categories().eval(), (torch.tensor([[2.0, -7.0, 50.0]]),))


class StopsEarly(nn.Module):
    """Answers by its first head where all are close to 0, and by its second one otherwise."""

    def __init__(self, ending: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([nn.Linear(8, FEATURES), nn.Linear(FEATURES, FEATURES)])
        self.heads = nn.ModuleList([nn.Linear(FEATURES, CLASSES), nn.Linear(FEATURES, CLASSES)])
        self.ending = ending

    def forward(self, x: Tensor) -> Tensor:
        h = self.blocks[0](x).tanh()
        early = self.heads[0](h)
        found: Tensor = self.ending(early if x.abs().max() < 5 else self.heads[1](self.blocks[1](h).tanh()))
        return found


class SharesByInput(StopsEarly):
    """Adds up its heads, in other shares where numbers are large."""

    def forward(self, x: Tensor) -> Tensor:
        h, share = self.blocks[0](x).tanh(), 0.5 if x.abs().max() < 5 else 0.9
        found: Tensor = share * self.heads[0](h) + (1 - share) * self.heads[1](h)
        return found


def test_a_model_that_adds_up_layers_in_other_shares_later_is_refused() -> None:
    guard = pnml.guard(SharesByInput(nn.Identity())).fit([rows(40).clamp(-4, 4)], progress=False)
    with pytest.raises(HeadNotFoundError, match=r"'heads\.0 \+ heads\.1' puts out is not what the model returned"):
        guard(10 * rows(3))


@pytest.mark.filterwarnings("ignore::pnml.pytorch.head.HeadWarning")
@pytest.mark.parametrize("ending", [nn.Identity(), nn.Softmax(dim=1)])
def test_a_model_that_answers_by_another_layer_later_is_refused(ending: nn.Module) -> None:
    guard = pnml.guard(StopsEarly(ending)).fit([rows(40).clamp(-4, 4)], progress=False)
    assert guard.head_name == "heads.0"
    with pytest.raises(HeadNotFoundError, match=r"what the head 'heads\.0' puts out is not what the model returned"):
        guard(10 * rows(3))


class Clamps(nn.Module):
    """Answers by logits that are clamped, which the inputs of a fit need not show."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.block, self.head = nn.Sequential(nn.Linear(8, FEATURES), nn.ReLU()), nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.block(x))
        return logits.clamp(-9, 9)


def test_a_model_that_clamps_logits_is_scored_far_out() -> None:
    guard = pnml.guard(Clamps()).fit([rows(40)], progress=False)
    found = guard(100 * rows(5))
    assert float(found.logits.abs().max()) == 9
    assert bool(found.regret.isfinite().all())


class Allows(Clamps):
    """Rules out classes, which the batches of a fit need not show."""

    def forward(self, x: Tensor, allowed: Tensor | None = None) -> Tensor:
        logits: Tensor = self.head(self.block(x))
        return logits if allowed is None else logits.masked_fill(~allowed, -torch.inf)


def test_a_model_that_rules_out_classes_is_scored() -> None:
    guard, x = pnml.guard(Allows()).fit([rows(40)], progress=False), rows(5, seed=1)
    allowed = torch.arange(CLASSES) < 2
    found = guard(x, allowed)
    assert set(found.prediction.tolist()) <= {0, 1}
    assert bool(found.regret.isfinite().all())
