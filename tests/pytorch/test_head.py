"""Finding the last linear layer: by whose output the logits are, under whatever name it goes."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

from pnml.pytorch.finding import find_head
from pnml.pytorch.head import HeadNotFoundError, logits_of, record_calls, unwrapped
from pnml.pytorch.passes import Passes
from pnml_bench.zoo.densenet import DenseNet

from .networks import CLASSES, CNN, FEATURES, Timm, bert, images, mlp, rows, sentences, vit

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Output:
    """What Hugging Face calls a ModelOutput."""

    loss: Tensor | None
    logits: Tensor


class Returning(nn.Module):
    """A network that returns what ``wrap`` makes of its logits."""

    def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.body = nn.Linear(8, FEATURES)
        self.last = nn.Linear(FEATURES, CLASSES)
        self.wrap = wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(self.last(self.body(x).relu()))


@pytest.mark.parametrize(
    ("model", "inputs", "head"),
    [
        pytest.param(mlp().eval(), rows(4), "3", id="mlp"),
        pytest.param(nn.Linear(8, 2), rows(4), "", id="linear"),
        pytest.param(CNN().eval(), images(4), "classifier", id="cnn"),
        pytest.param(Timm().eval(), images(4), "classifier", id="timm"),
        pytest.param(DenseNet(10, depth=1).eval(), images(2, size=32), "fc", id="densenet"),
        pytest.param(Returning(lambda logits: {"features": None, "logits": logits}), rows(4), "last", id="dict"),
        pytest.param(Returning(lambda logits: Output(None, logits)), rows(4), "last", id="output"),
        pytest.param(Returning(lambda logits: logits.double()), rows(4), "last", id="other dtype"),
    ],
)
def test_head_is_found(model: nn.Module, inputs: Tensor, head: str) -> None:
    assert find_head(model, (inputs,)).name == head


def test_head_of_transformers_is_found() -> None:
    batch = sentences(4)
    del batch["labels"]
    assert find_head(bert(), (), batch).name == "classifier"
    assert find_head(vit(), (), {"pixel_values": images(4)}).name == "classifier"


def test_head_called_with_a_keyword_is_found() -> None:
    class Keyword(CNN):
        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.classifier(input=self.features(x))
            return logits

    assert find_head(Keyword(), (images(4),)).name == "classifier"


class Twins(nn.Module):
    """Two layers with equal outputs; neither output itself is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, FEATURES)
        self.left, self.right = nn.Linear(FEATURES, CLASSES), nn.Linear(FEATURES, CLASSES)
        self.right.load_state_dict(self.left.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        return torch.maximum(self.left(x), self.right(x))


def test_ambiguity_lists_the_candidates_and_a_name_settles_it() -> None:
    with pytest.raises(HeadNotFoundError, match=r"(?s)more than one .*head='...'.*left: 12 features to 5.*right: 12"):
        find_head(Twins(), (rows(4),))
    assert find_head(Twins(), (rows(4),), named="right").name == "right"


def test_of_two_equal_layers_the_one_whose_output_is_returned_is_the_head() -> None:
    class Auxiliary(Twins):
        def forward(self, x: Tensor) -> Tensor:
            x = self.body(x)
            logits: Tensor = self.left(x)
            self.right(x)
            return logits

    assert find_head(Auxiliary(), (rows(4),)).name == "left"


def test_no_linear_layer_at_all() -> None:
    conv = nn.Sequential(nn.Conv2d(3, CLASSES, 3, stride=8), nn.Flatten())
    with pytest.raises(
        HeadNotFoundError, match=r"(?s)no linear layer has .*\(4, 5\).*none: the model has no nn.Linear.*embed="
    ):
        find_head(conv, (images(4),))


def test_linear_layers_but_none_gives_the_logits() -> None:
    squeezed = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, CLASSES), nn.Tanh())
    with pytest.raises(HeadNotFoundError) as error:
        find_head(squeezed, (rows(4),))
    assert "1: 6 features to 5 outputs" in str(error.value)
    assert "8 features" not in str(error.value), "a layer of another width is no candidate"
    assert "pnml.guard(model, head=(weight, bias), embed=" in str(error.value)
    with pytest.raises(HeadNotFoundError, match="'1' does not have the model's logits"):
        find_head(squeezed, (rows(4),), named="1")


def test_candidates_are_all_layers_when_none_has_the_width_of_the_logits() -> None:
    padded = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3), nn.ConstantPad1d((0, 1), 0.0))
    with pytest.raises(HeadNotFoundError, match=r"(?s)0: 8 features to 6 outputs.*2: 6 features to 3 outputs"):
        find_head(padded, (rows(4),))


@pytest.mark.parametrize("named", ["0", "unused"])
def test_a_wrongly_named_head_is_refused_with_candidates(named: str) -> None:
    model = mlp().eval()
    model.register_module("unused", nn.Linear(FEATURES, CLASSES))
    model.forward = lambda x: model[3](model[1](model[0](x)))  # type: ignore[method-assign]
    with pytest.raises(HeadNotFoundError, match=rf"(?s)'{named}' does not have .*3: 12 features to 5 outputs"):
        find_head(model, (rows(4),), named=named)


def test_a_head_that_is_not_affine_is_refused() -> None:
    class Squared(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.square())

    model = nn.Sequential(nn.Linear(8, FEATURES), Squared(FEATURES, CLASSES))
    with pytest.raises(HeadNotFoundError, match=r"(?s)'1', a Squared, does not compute weight · x \+ bias.*embed="):
        find_head(model, (rows(4),))


def test_classes_instead_of_logits_are_refused() -> None:
    with pytest.raises(TypeError, match=r"the model returned torch.int64 of shape \(4,\): expected logits"):
        find_head(Returning(lambda logits: logits.argmax(dim=1)), (rows(4),))


@pytest.mark.parametrize(
    ("output", "held", "example"),
    [
        ((torch.zeros(2),), r" with output\[0\] of shape \(2,\)", r"output\[0\]"),
        (
            {"hidden": torch.zeros(4, 7, 3), "scores": torch.zeros(4, 2)},
            r" with output\['hidden'\] of shape \(4, 7, 3\), output\['scores'\] of shape \(4, 2\)",
            r"output\['scores'\]",
        ),
        (SimpleNamespace(scores=torch.zeros(4, 2), n=1), r" with output\.scores of shape \(4, 2\)", r"output\.scores"),
        (None, "", r"output\[0\]"),
    ],
)
def test_a_model_without_logits_is_refused_with_what_it_returned(output: Any, held: str, example: str) -> None:
    match = rf"returned {type(output).__name__}{held}: expected a tensor of logits.*lambda output: {example}\)"
    with pytest.raises(TypeError, match=match):
        find_head(Returning(lambda _: output), (rows(4),))


def test_not_a_number_does_not_hide_the_head() -> None:
    assert find_head(mlp().eval(), (rows(4) * torch.nan,)).name == "3"


def test_hooks_are_gone_even_after_an_exception() -> None:
    model = Returning(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        find_head(model, (rows(4),))
    assert not any(module._forward_hooks or module._forward_hooks_with_kwargs for module in model.modules())


def test_outputs_in_other_threads_are_not_replaced() -> None:
    class Elsewhere(nn.Module):
        """Calls its layer in another thread, too."""

        def __init__(self) -> None:
            super().__init__()
            self.head, self.seen = nn.Linear(8, CLASSES), torch.zeros(0)

        def forward(self, x: Tensor) -> Tensor:
            def work() -> None:
                self.seen = self.head(x)

            thread = Thread(target=work)
            thread.start()
            thread.join()
            logits: Tensor = self.head(x)
            return logits

    model, x, row = Elsewhere(), rows(3), torch.arange(float(CLASSES))
    replaced = Passes(model, (x,), {}, logits_of).run_replaced("head", row)
    assert torch.equal(replaced, row.expand(3, CLASSES))
    assert torch.equal(model.seen, model.head(x))


def test_calls_of_other_threads_are_not_noted() -> None:
    layer = nn.Linear(8, 2)
    with record_calls({"head": layer}) as calls:
        thread = Thread(target=layer, args=(rows(3),))
        thread.start()
        thread.join()
        layer(rows(2))
    assert [len(call.embeddings) for call in calls["head"]] == [2]


def test_wrappers_come_off_in_any_order() -> None:
    model = mlp()
    compiled: Any = torch.compile(model, backend="eager")
    parallel: Any = torch.compile(nn.DataParallel(compiled), backend="eager")
    assert unwrapped(parallel) is model
    assert unwrapped(model) is model
