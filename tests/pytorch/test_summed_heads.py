"""Models that add up or average the outputs of several linear layers: one linear layer on what enters them, joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import pnml
from pnml.pytorch.finding import find_head
from pnml.pytorch.head import HeadNotFoundError, HeadWarning

from .architectures import Attention
from .classifiers import body
from .networks import CLASSES, FEATURES, images, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Ensemble(nn.Module):
    """Three networks, and what is made of their logits."""

    def __init__(self, combine: Callable[[Tensor], Tensor], classes: int = CLASSES) -> None:
        super().__init__()
        torch.manual_seed(0)
        networks = [nn.Sequential(body(seed), nn.Linear(FEATURES, classes)) for seed in range(3)]
        self.networks, self.combine = nn.ModuleList(networks), combine

    def forward(self, x: Tensor) -> Tensor:
        return self.combine(torch.stack([network(x) for network in self.networks]))


NAMES = "networks.0.1 + networks.1.1 + networks.2.1"
SUMS = [
    pytest.param(lambda z: z.mean(dim=0), (1 / 3, 1 / 3, 1 / 3), id="mean"),
    pytest.param(lambda z: z.sum(dim=0), (1, 1, 1), id="sum"),
    pytest.param(lambda z: 0.5 * z[0] + 0.3 * z[1] + 0.2 * z[2], (0.5, 0.3, 0.2), id="weighted"),
    pytest.param(lambda z: z[0] - 0.7071 * z[1] + z[2], (1, -0.7071, 1), id="subtracted"),
]


def joined(model: Ensemble, shares: tuple[float, ...]) -> dict[str, Any]:
    """The head of an ensemble as a user would give it."""
    heads: list[Any] = [network[1] for network in model.networks]  # type: ignore[index]
    return {
        "head": (
            torch.cat([share * head.weight for share, head in zip(shares, heads, strict=True)], dim=1),
            torch.stack([share * head.bias for share, head in zip(shares, heads, strict=True)]).sum(dim=0),
        ),
        "embed": lambda model, x: torch.cat([network[0](x) for network in model.networks], dim=1),
    }


@pytest.mark.parametrize("named", [None, "networks.1.1"])
@pytest.mark.parametrize(("combine", "shares"), SUMS)
def test_a_sum_of_logits_is_one_linear_layer_on_joined_embeddings(
    combine: Callable[[Tensor], Tensor], shares: tuple[float, ...], named: str | None
) -> None:
    model = Ensemble(combine).eval()
    guard = pnml.guard(model, head=named, layers="last").fit([rows(200)], progress=False)
    by_hand = pnml.guard(model, **joined(model, shares)).fit([rows(200)], progress=False)
    fresh = rows(9, seed=1)
    torch.testing.assert_close(guard.head.weight, by_hand.head.weight.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(guard(fresh).regret, by_hand(fresh).regret, rtol=1e-3, atol=1e-6)
    with torch.no_grad():
        assert torch.equal(guard(fresh).logits, model(fresh))
    assert f"head {NAMES} (added up)" in repr(guard)


@pytest.mark.parametrize("count", [1, 2])
def test_a_sum_is_found_in_a_batch_of_few_samples(count: int) -> None:
    found = find_head(Ensemble(lambda z: z.mean(dim=0), classes=8).eval(), (rows(count),))
    assert (found.name, found.notes) == (NAMES, ("added up",))


def test_a_sum_is_found_with_other_samples_where_one_has_too_few_classes(tmp_path: Path) -> None:
    model = Ensemble(lambda z: z.mean(dim=0), classes=1).eval()
    with pytest.warns(HeadWarning):
        guard = pnml.guard(model).fit([rows(100)], progress=False)
    guard.save(tmp_path / "detector.safetensors")
    with pytest.warns(HeadWarning):
        found = pnml.guard(model).load(tmp_path / "detector.safetensors")(rows(1))
    torch.testing.assert_close(found.regret, guard(rows(1)).regret)


def test_one_sample_may_be_too_little() -> None:
    model = nn.Sequential(nn.Linear(8, CLASSES), nn.ReLU())
    with pytest.raises(HeadNotFoundError, match="the batch has one sample, which may be too few"):
        find_head(model, (rows(1, seed=1),))


@pytest.mark.parametrize("spread", [0.1, 0.03, 0.01])
def test_a_sum_is_not_taken_for_one_shifted_layer_where_samples_differ_little(spread: float) -> None:
    """In half precision a little more or less of the other members looks like rounding."""
    model = Ensemble(lambda z: z.mean(dim=0)).eval().bfloat16()
    batch = (rows(1) + spread * rows(9, seed=1)).bfloat16()
    assert find_head(model, (batch,)).name == NAMES


def test_layers_of_all_members_are_watched_and_what_holds_a_head_is_not() -> None:
    guard = pnml.guard(Ensemble(lambda z: z.mean(dim=0)).eval()).fit([rows(100)], progress=False)
    assert guard.layers == ("networks.0.0.0", "networks.1.0.0", "networks.2.0.0")


def test_a_sum_is_found_again_by_another_guard_and_in_another_fit(tmp_path: Path) -> None:
    model = Ensemble(lambda z: z.mean(dim=0)).eval()
    guard = pnml.guard(model).fit([rows(100)], progress=False)
    guard.calibrate([rows(50, seed=2)], progress=False)
    guard.save(tmp_path / "detector.safetensors")
    fresh = rows(5, seed=1)
    expected = guard(fresh)
    for other in (pnml.guard(model), guard):
        found = other.load(tmp_path / "detector.safetensors")(fresh)
        assert torch.equal(found.regret, expected.regret)
    torch.testing.assert_close(guard.fit([rows(100)], progress=False)(fresh).regret, expected.regret)
    model.networks[1][1].weight.data *= 2  # type: ignore[index]
    with pytest.raises(ValueError, match=r"other weights|another last layer"):
        pnml.guard(model).load(tmp_path / "detector.safetensors")(fresh)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_mean_is_a_mean_in_every_precision(dtype: torch.dtype) -> None:
    model = Ensemble(lambda z: z.mean(dim=0)).to(dtype).eval()
    heads: list[Any] = [network[1] for network in model.networks]  # type: ignore[index]
    found = find_head(model, (rows(50).to(dtype),))
    expected = torch.cat([head.weight for head in heads], dim=1).detach() / 3
    torch.testing.assert_close(found.affine.weight, expected)


def test_a_sum_of_one_logit_and_of_labels() -> None:
    one = Ensemble(lambda z: z.mean(dim=0), classes=1).eval()
    with pytest.warns(HeadWarning, match=r"logits \(0, z\) of two classes"):
        result = pnml.guard(one).fit([rows(100)], progress=False)(rows(5, seed=1))
    with torch.no_grad():
        torch.testing.assert_close(result.logits, torch.cat([torch.zeros(5, 1), one(rows(5, seed=1))], dim=1))
    labels = pnml.guard(Ensemble(lambda z: z.mean(dim=0)).eval(), task="multilabel").fit([rows(100)], progress=False)
    assert labels(rows(5, seed=1)).regret.shape == (5, CLASSES)


class Distilled(nn.Module):
    """Two tokens and two heads, each behind a normalisation, whose mean is the answer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.patch = nn.Conv2d(3, 8, 4, stride=4)
        self.tokens = nn.Parameter(torch.randn(1, 2, 8))
        self.blocks = nn.Sequential(*(Attention() for _ in range(4)))
        self.classify, self.distilled = (nn.Sequential(nn.LayerNorm(8), nn.Linear(8, CLASSES)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch(x).flatten(2).transpose(1, 2)
        x = self.blocks(torch.cat([self.tokens.expand(len(x), -1, -1), patches], dim=1))
        logits: Tensor = (self.classify(x[:, 0]) + self.distilled(x[:, 1])) / 2
        return logits


def test_a_distilled_transformer_is_guarded_by_both_of_its_heads() -> None:
    model = Distilled().eval()
    guard = pnml.guard(model).fit([images(80)], progress=False)
    assert "head classify.1 + distilled.1 (added up)" in repr(guard)
    assert guard.layers[0] == "patch"
    assert {name.split(".")[0] for name in guard.layers[1:]} == {"blocks"}, "the normalisations put out the embeddings"
    fresh = images(6, seed=1)
    whole, alone = guard(fresh), torch.cat([guard(x[None]).regret for x in fresh])
    torch.testing.assert_close(alone, whole.regret, rtol=1e-3, atol=1e-6)
    with torch.no_grad():
        assert torch.equal(whole.prediction, model(fresh).argmax(dim=1))


class Views(nn.Module):
    """One head on two views of a sample, whose mean is the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = body(), nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = (self.head(self.body(x)) + self.head(self.body(-x.square()))) / 2
        return logits


def test_a_head_on_several_views_has_the_mean_of_what_enters_it_for_embedding() -> None:
    model = Views().eval()
    guard = pnml.guard(model, layers="last").fit([rows(100)], progress=False)
    by_hand = pnml.guard(model, head="head", embed=lambda model, x: (model.body(x) + model.body(-x.square())) / 2).fit(
        [rows(100)], progress=False
    )
    fresh = rows(5, seed=1)
    torch.testing.assert_close(guard(fresh).regret, by_hand(fresh).regret, rtol=1e-3, atol=1e-6)
    model.forward = lambda x: model.head(model.body(x))  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="1 calls of 'head', a part of the head, were seen"):
        guard(fresh)


@pytest.mark.parametrize(
    "combine",
    [
        pytest.param(lambda z: z[0] + z[1:].amax(dim=0) / 2, id="largest of several"),
        pytest.param(lambda z: z.prod(dim=0), id="product"),
    ],
)
def test_what_is_not_linear_is_refused(combine: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(HeadNotFoundError, match="no linear layer has the model's logits"):
        find_head(Ensemble(combine), (rows(20),))
