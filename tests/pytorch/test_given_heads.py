"""The way out: a last layer and embeddings that the user gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import pnml
from pnml.pytorch.head import HeadNotFoundError, HeadWarning

from .classifiers import body
from .networks import CLASSES, FEATURES, mlp, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Functional(nn.Module):
    """A last layer without a module, and an answer that a guard cannot read by itself."""

    def __init__(self, wrap: Callable[[Tensor], Any] = lambda z: z, classes: int = CLASSES) -> None:
        super().__init__()
        self.features, self.wrap = body(), wrap
        self.weight, self.bias = nn.Parameter(torch.randn(classes, FEATURES)), nn.Parameter(torch.randn(classes))

    def forward(self, x: Tensor) -> Any:
        return self.wrap(functional.linear(self.features(x), self.weight, self.bias))


def embed(model: Any, x: Tensor) -> Tensor:
    found: Tensor = model.features(x)
    return found


def expected(model: Functional) -> Tensor:
    with torch.no_grad():
        detector = pnml.Detector(model.weight, model.bias).fit(model.features(rows(100)))
        found: Tensor = detector.score(model.features(rows(7, seed=1)))
    return found


def test_a_parameter_is_the_last_layer(tmp_path: Path) -> None:
    model = Functional()
    with pytest.raises(HeadNotFoundError, match=r"head=\(weight, bias\), embed="):
        pnml.guard(model).fit([rows(100)], progress=False)
    guard = pnml.guard(model, head=(model.weight, model.bias), embed=embed).fit([rows(100)], progress=False)
    assert "given by embed" in repr(guard)
    assert guard.layers == ()
    result = guard(rows(7, seed=1))
    torch.testing.assert_close(result.regret, expected(model))
    with torch.no_grad():
        torch.testing.assert_close(result.logits, model(rows(7, seed=1)))
    guard.save(tmp_path / "detector.safetensors")
    loaded = pnml.guard(model, head=(model.weight, model.bias), embed=embed).load(tmp_path / "detector.safetensors")
    assert torch.equal(loaded(rows(7, seed=1)).regret, result.regret)
    with pytest.raises(ValueError, match="fitted for another last layer"):
        pnml.guard(model, head=(2 * model.weight, None), embed=embed).load(tmp_path / "detector.safetensors")


def test_logits_are_taken_out_of_what_the_model_returns() -> None:
    model = Functional(lambda z: (None, {"scores": z}))
    with pytest.raises(TypeError, match=r"returned tuple.*logits=lambda output"):
        pnml.guard(model).fit([rows(100)], progress=False)
    guard = pnml.guard(
        model, head=(model.weight, model.bias), embed=embed, logits=lambda output: output[1]["scores"]
    ).fit([rows(100)], progress=False)
    torch.testing.assert_close(guard(rows(7, seed=1)).regret, expected(model))


def test_logits_alone_are_enough_where_the_head_is_a_module() -> None:
    model = mlp().eval()
    plain = pnml.guard(model).fit([rows(100)], progress=False)(rows(7, seed=1))
    wrapped = nn.Sequential(model)
    wrapped.forward = lambda x: (model(x), x)  # type: ignore[method-assign]
    guard = pnml.guard(wrapped, logits=lambda output: output[0]).fit([rows(100)], progress=False)
    assert torch.equal(guard(rows(7, seed=1)).regret, plain.regret)


def test_a_softmax_after_a_given_head_is_said_and_undone() -> None:
    model = Functional(lambda z: z.softmax(dim=1))
    guard = pnml.guard(model, head=(model.weight, model.bias), embed=embed)
    with pytest.warns(HeadWarning, match="ends in softmax"):
        guard.fit([rows(100)], progress=False)
    result = guard(rows(7, seed=1))
    torch.testing.assert_close(result.regret, expected(model))
    with torch.no_grad():
        torch.testing.assert_close(result.probabilities, model(rows(7, seed=1)))


def test_a_given_head_that_does_not_give_the_models_answer_is_refused() -> None:
    model = Functional(lambda z: z.relu())
    with pytest.raises(HeadNotFoundError, match=r"and the model gives \(7, 5\), .* apart.*logits=lambda"):
        pnml.guard(model, head=(model.weight, model.bias), embed=embed).fit([rows(100)], progress=False)
    labels = Functional(torch.sigmoid)
    with pytest.raises(HeadNotFoundError, match="task='multilabel'"):
        pnml.guard(labels, head=(labels.weight, labels.bias), embed=embed).fit([rows(100)], progress=False)


def test_one_given_logit_is_two_classes() -> None:
    model = Functional(lambda z: z[:, 0], classes=1)
    guard = pnml.guard(model, head=(model.weight, model.bias), embed=embed)
    with pytest.warns(HeadWarning, match=r"logits \(0, z\) of two classes"):
        guard.fit([rows(100)], progress=False)
    with torch.no_grad():
        torch.testing.assert_close(guard(rows(7)).probabilities[:, 1], torch.sigmoid(model(rows(7))))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embed": embed}, r"(?s)go together:.*pnml\.guard\(model, head=\(weight, bias\), embed="),
        ({"head": (torch.zeros(5, 12), None)}, "go together"),
        ({"head": "features", "embed": embed}, "'features' is no linear layer"),
        ({"head": (torch.zeros(5), None), "embed": embed}, r"weight must be a tensor of shape \(classes, features\)"),
        ({"head": (torch.zeros(5, 12), None), "embed": embed, "layers": ["features"]}, "leave one of them out"),
        ({"task": "several"}, r"task must be one of \('multiclass', 'multilabel'\), got 'several'"),
    ],
)
def test_contradictions_are_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pnml.guard(Functional(), **options)


@pytest.mark.parametrize(
    ("wrong", "got"), [(lambda _, x: x, r"of shape \(7, 8\)"), (lambda *_: None, "NoneType")], ids=["width", "none"]
)
def test_embeddings_of_another_shape_are_refused(wrong: Callable[..., Any], got: str) -> None:
    model = Functional()
    with pytest.raises(ValueError, match=rf"embed must return embeddings of shape \(n, 12\).*got {got}"):
        pnml.guard(model, head=(model.weight, model.bias), embed=wrong).fit([rows(100)], progress=False)
