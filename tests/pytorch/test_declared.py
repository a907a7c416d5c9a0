"""Models that are supported by a declaration, or refused with the line that helps; and that typing it works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import pnml
from pnml.pytorch.head import HeadNotFoundError, HeadWarning
from pnml.pytorch.layers import LayersNotFoundError

from .lines import by_lines_of
from .networks import CLASSES, FEATURES, images, mlp, rows, seeded, sequences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Then(nn.Module):
    """A perceptron, and what a function makes of its logits."""

    def __init__(self, then: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.then = mlp(), then

    def forward(self, x: Tensor) -> Any:
        return self.then(self.inner(x))


class Distilled(nn.Module):
    """The mean of two heads on tokens of their own, as in distilled DeiT, or their sum."""

    def __init__(self, share: int) -> None:
        super().__init__()
        self.share = share
        torch.manual_seed(0)
        self.body = nn.Linear(5, FEATURES)
        self.head, self.head_dist = nn.Linear(FEATURES, CLASSES), nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.body(x).tanh()
        logits: Tensor = (self.head(tokens[:, 0]) + self.head_dist(tokens[:, 1])) / self.share
        return logits


class Crops(nn.Module):
    """Several views of a sample in the batch, averaged."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner(x.flatten(0, 1)).reshape(len(x), x.shape[1], CLASSES).mean(1)
        return logits


def permuted(z: Tensor) -> Tensor:
    return z[:, [2, 0, 1, 4, 3]]


@pytest.mark.parametrize(("then", "warns"), [(lambda z: z / 1.7, False), (permuted, True), (lambda z: z[:, :3], True)])
def test_the_output_of_a_declared_head_is_taken_for_the_logits(then: Any, warns: bool, tmp_path: Path) -> None:  # noqa: FBT001
    model, x = Then(then), rows(100)
    with pytest.raises(
        HeadNotFoundError, match=r"(?s)'inner\.3' .*pnml\.guard\(model, head='inner\.3'\)|as wide: .*'inner\.3'"
    ):
        pnml.guard(model).fit([x], progress=False)
    guard = pnml.guard(model, head="inner.3")
    if warns:
        with pytest.warns(HeadWarning, match="as declared"):
            guard.fit([x], progress=False)
    else:
        guard.fit([x], progress=False)
    expected = pnml.guard(model.inner).fit([x], progress=False)
    torch.testing.assert_close(guard(rows(9)).regret, expected(rows(9)).regret)
    torch.testing.assert_close(guard(rows(9)).logits, expected(rows(9)).logits)
    guard.save(tmp_path / "detector.safetensors")
    loaded = pnml.guard(model).load(tmp_path / "detector.safetensors")
    assert torch.equal(loaded(rows(9)).regret, guard(rows(9)).regret)


@pytest.mark.parametrize("share", [1, 2])
def test_two_heads_are_joined_by_the_lines_of_the_error(share: int) -> None:
    model = Distilled(share)
    with pytest.raises(HeadNotFoundError, match="of several heads: join what enters them") as refusal:
        pnml.guard(model).fit([sequences(40)], progress=False)
    guard = by_lines_of(refusal.value, model).fit([sequences(40)], progress=False)
    with torch.no_grad():
        torch.testing.assert_close(guard(sequences(9)).logits, model(sequences(9)))


def test_views_in_the_batch_are_refused_with_what_was_seen() -> None:
    views = torch.randn(6, 4, 8, generator=seeded())
    with pytest.raises(HeadNotFoundError, match=r"given 24 rows for 6 samples.*guard the model of one view"):
        pnml.guard(Crops()).fit([views], progress=False)


def test_a_cosine_classifier_is_given() -> None:
    class Cosine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.vectors = nn.Linear(8, FEATURES), nn.Parameter(torch.randn(CLASSES, FEATURES))

        def embed(self, x: Tensor) -> Tensor:
            return functional.normalize(self.body(x).tanh())

        def forward(self, x: Tensor) -> Tensor:
            return 16 * functional.linear(self.embed(x), functional.normalize(self.vectors))

    model = Cosine()
    with pytest.raises(HeadNotFoundError, match=r"head=\(weight, bias\), embed=lambda"):
        pnml.guard(model).fit([rows(40)], progress=False)
    head = (16 * functional.normalize(model.vectors), None)
    guard = pnml.guard(model, head=head, embed=lambda model, x: model.embed(x)).fit([rows(40)], progress=False)
    assert bool(guard(rows(5)).regret.isfinite().all())


@pytest.mark.parametrize("fixed", [True, False])
def test_classes_that_are_ruled_out_keep_a_probability_of_zero(fixed: bool) -> None:  # noqa: FBT001
    def rule_out(z: Tensor) -> Tensor:
        out = torch.zeros_like(z, dtype=torch.bool)
        out[:, 3] = True
        return z.masked_fill(out if fixed else out & (z[:, :1] > 0), -torch.inf)

    model = Then(rule_out).eval()
    result = pnml.guard(model).fit([rows(100)], progress=False)(rows(9))
    with torch.no_grad():
        assert torch.equal(result.logits, model(rows(9)))
    assert bool(result.regret.isfinite().all())


def test_one_allowed_class_has_no_regret() -> None:
    only = torch.full((CLASSES,), -torch.inf)
    only[2] = 0.0
    guard = pnml.guard(Then(lambda z: torch.where(z[:, :1] > -0.1, z + only, z)))
    guard.fit([rows(100)], progress=False)
    result = guard(rows(100))
    certain = result.probabilities[:, 2] == 1
    assert bool(certain.any())
    assert float(result.regret[certain].max()) == pytest.approx(0, abs=0.02)  # but for the label noise of "auto"


def test_a_tuple_is_taken_apart_by_logits() -> None:
    model = Then(lambda z: (z, z.sum()))
    with pytest.raises(TypeError, match=r"pnml\.guard\(model, logits=lambda output: output\[0\]\)"):
        pnml.guard(model).fit([rows(40)], progress=False)
    assert pnml.guard(model, logits=lambda output: output[0]).fit([rows(40)], progress=False).head_name == "inner.3"


class Steps(nn.Module):
    """A head on every token, of which something is returned."""

    def __init__(self, returned: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.returned = nn.Linear(5, FEATURES), nn.Linear(FEATURES, CLASSES), returned

    def forward(self, x: Tensor) -> Tensor:
        return self.returned(self.head(self.body(x).tanh()))


@pytest.mark.parametrize(
    ("reading", "returned", "take"),
    [
        (0, lambda z: z[:, 0] / 2, lambda x: x[:, 0]),
        (-1, lambda z: z[:, -1], lambda x: x[:, -1]),
        ("mean", lambda z: z.amax(1), lambda x: x.mean(1)),
    ],
)
def test_a_reading_may_be_declared(reading: Any, returned: Any, take: Any) -> None:
    model, x = Steps(returned), sequences(60)
    guard = pnml.guard(model, head="head", reading=reading, layers="last")
    if reading == "mean":
        with pytest.raises(HeadNotFoundError, match=r"puts out 7 rows a sample.*reading=0\), reading='mean'"):
            pnml.guard(model, head="head").fit([x], progress=False)
        with pytest.warns(HeadWarning, match="as declared"):
            guard.fit([x], progress=False)
    else:
        guard.fit([x], progress=False)
    with torch.no_grad():
        embed = [take(model.body(batch).tanh()) for batch in (x, sequences(9, seed=1))]
    by_hand = pnml.Detector(model.head.weight, model.head.bias).fit(embed[0])
    torch.testing.assert_close(guard(sequences(9, seed=1)).regret, by_hand.score(embed[1]), rtol=1e-3, atol=1e-5)
    with pytest.raises(ValueError, match="reading must be the number of a token or one of"):
        pnml.guard(model, reading="max").fit([x], progress=False)


def test_every_pixel_may_have_an_answer() -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 5, 1))
    guard = pnml.guard(model, layers="last").fit([images(20)], progress=False)
    assert guard(images(2)).regret.shape == (2, 8, 8)
    with pytest.raises(LayersNotFoundError, match="every token or pixel has an answer of its own"):
        pnml.guard(model, layers=["0"]).fit([images(20)], progress=False)


def test_labels_are_left_out_of_a_call_as_of_a_fit() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, pixels: Tensor, labels: Tensor | None = None) -> Tensor:
            assert labels is None
            logits: Tensor = self.inner(pixels)
            return logits

    batch = {"pixels": rows(40), "labels": torch.full((40,), 77)}
    guard = pnml.guard(Named()).fit([batch], progress=False)
    assert torch.equal(guard(**batch).regret, guard(rows(40)).regret)
