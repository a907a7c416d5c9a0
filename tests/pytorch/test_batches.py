"""What loaders may yield: the model gets what its ``forward`` takes, or the refusal says how to choose."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset, TensorDataset

import pnml
from pnml.pytorch.batches import inputs_of

from .networks import CLASSES, bert, mlp, rows, sentences, vit

if TYPE_CHECKING:
    from collections.abc import Iterator

X, B, Y = rows(40), rows(40, seed=1), torch.zeros(40, dtype=torch.long)


class Pair(nn.Module):
    """Takes two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        logits: Tensor = self.inner(a + 2 * b)
        return logits


class Masked(Pair):
    """Takes one input, and another one if there is one."""

    def forward(self, a: Tensor, b: Tensor | None = None) -> Tensor:
        return super().forward(a, torch.zeros_like(a) if b is None else b)


class Anything(Pair):
    """A wrapper that says nothing about what it takes."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return super().forward(*args, **kwargs)


def regret(guard: pnml.Guard, batch: Any, *args: Any) -> Tensor:
    return guard.fit([batch], progress=False)(*args).regret  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "batch", [(X, B), (X, B, Y), [X, B, Y, torch.arange(40)], ((X, B), Y), {"b": B, "a": X}, {"a": X, "b": B, "idx": Y}]
)
def test_two_inputs_reach_a_model_that_needs_two(batch: Any) -> None:
    model = Pair()
    reference = pnml.guard(mlp(), layers="last").fit([X + 2 * B], progress=False)(X + 2 * B).regret
    torch.testing.assert_close(regret(pnml.guard(model, layers="last"), batch, X, B), reference)


@pytest.mark.parametrize(
    "batch",
    [
        (X, Y),
        (X, Y, torch.arange(40)),
        (X, Y, ["a"] * 40),
        (X, B, Y),  # forward has no place for the second
        {"image": X, "label": Y},
        {"image": X, "intent": Y, "path": ["a"] * 40},
        {"sample": {"input": X, "labels": Y}, "labels": Y},
        ({"input": X, "label": Y}, Y),
        ((X,), Y),
    ],
)
def test_one_input_reaches_a_model_that_needs_one(batch: Any) -> None:
    model = mlp()
    assert torch.equal(regret(pnml.guard(model), batch, X), regret(pnml.guard(model), X, X))


@pytest.mark.parametrize(
    ("model", "batch"),
    [
        (Masked(), (X, B, Y)),
        (Masked(), (X, torch.zeros(40, CLASSES))),  # soft labels, or the second input?
        (Anything(), (X, B, Y)),
        (mlp(), ((X, B), Y)),
        (Masked(), ({"a": X}, B, Y)),
    ],
)
def test_what_could_mean_two_things_is_refused_with_a_line_to_copy(model: nn.Module, batch: Any) -> None:
    with pytest.raises(ValueError, match=r"which entries are they\? .*pnml\.guard\(model, inputs=lambda batch: batch"):
        pnml.guard(model).fit([batch], progress=False)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({"image": X, "depth": B}, r"forward takes a, b by name, .* \['image', 'depth'\].*batch\['image'\]"),
        ({"a": X, "second": B}, r"forward takes a, b by name"),
        ((X,), r"yielded 1 entries, and Pair\.forward needs 2 inputs"),
    ],
)
def test_too_little_is_refused(batch: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pnml.guard(Pair()).fit([batch], progress=False)


def test_an_unknown_wide_entry_beside_known_ones_is_refused() -> None:
    """It may be a misspelt one, which would be lost without a word."""
    with pytest.raises(ValueError, match=r"takes a by name.*\['a', 'bb'\]"):
        pnml.guard(Masked()).fit([{"a": X, "bb": B}], progress=False)


@pytest.mark.parametrize(
    ("batch", "inputs"),
    [
        ((X, B, Y), lambda batch: batch[:2]),
        ((X, B, Y), lambda batch: {"a": batch[0], "b": batch[1]}),
        ({"first": X, "second": B}, lambda batch: ((batch["first"],), {"b": batch["second"]})),
        ((X.numpy(), B.numpy()), lambda batch: [torch.from_numpy(x) for x in batch]),
    ],
)
def test_inputs_chosen_by_a_function(batch: Any, inputs: Any) -> None:
    model = Masked()
    expected = regret(pnml.guard(model), {"a": X, "b": B}, X, B)
    guard = pnml.guard(model, inputs=inputs)
    assert torch.equal(regret(guard, batch, X, B), expected)
    guard.calibrate([batch], leave_one_out=True, progress=False)


def test_a_function_may_return_a_tensor_or_what_is_no_tensor() -> None:
    assert torch.equal(regret(pnml.guard(mlp(), inputs=lambda b: b["x"]), {"x": X, "z": B}, X), regret_of_x())
    (words,), _ = inputs_of(["a", "b"], mlp(), lambda batch: (batch,))
    assert words == ["a", "b"]


def regret_of_x() -> Tensor:
    return regret(pnml.guard(mlp()), X, X)


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        return iter(X)


@pytest.mark.parametrize("dataset", [TensorDataset(X, Y), Stream()])
def test_a_dataset_is_batched(dataset: Any) -> None:
    model, expected = mlp(), regret_of_x()
    guard = pnml.guard(model).fit(dataset, progress=False)
    assert guard.fitted().correlation.count == 40
    torch.testing.assert_close(guard(X).regret, expected)
    assert guard.calibrate(dataset, leave_one_out=True, progress=False).count == 40


def test_one_batch_is_no_loader() -> None:
    with pytest.raises(TypeError, match=r"got one batch with \['x', 'y'\]: wrap it, \[batch\]"):
        pnml.guard(mlp()).fit({"x": X, "y": Y}, progress=False)
    for batch in ((X, Y), [X, Y]):
        with pytest.raises(TypeError, match=r"one batch of tensors of shapes \(40, 8\), \(40,\): wrap it, \[batch\]"):
            pnml.guard(mlp()).fit(batch, progress=False)


@pytest.mark.parametrize(
    ("batch", "example"),
    [
        (X.numpy(), "torch.as_tensor(batch)"),
        ((X.numpy(), Y), "torch.as_tensor(batch[0])"),
        (((X.numpy(), Y), Y), "torch.as_tensor(batch[0][0])"),
        ({"image": X.numpy(), "label": Y}, "torch.as_tensor(batch['image'])"),
    ],
)
def test_arrays_in_a_batch_are_refused_with_a_line_that_works(batch: Any, example: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(f"inputs=lambda batch: {example})")):
        pnml.guard(mlp()).fit([batch], progress=False)
    choose = eval(f"lambda batch: {example}", {"torch": torch})  # noqa: S307
    found = pnml.guard(mlp(), inputs=choose).fit([batch], progress=False)
    torch.testing.assert_close(found(X).regret, regret_of_x())


def test_an_array_is_no_loader() -> None:
    with pytest.raises(TypeError, match=r"got ndarray: wrap it, \[torch\.as_tensor\(numpy\.asarray\(x\), dtype="):
        pnml.guard(mlp()).fit(X.numpy(), progress=False)


@pytest.mark.parametrize("loader", [None, 3, "train"])
def test_what_is_no_loader_is_refused(loader: Any) -> None:
    with pytest.raises(TypeError, match=f"got {type(loader).__name__}: pass a DataLoader or a list"):
        pnml.guard(mlp()).fit(loader, progress=False)


@pytest.mark.parametrize("samples", [list(X), [(x, 0) for x in X]])
def test_samples_without_batches_say_what_to_pass(samples: Any) -> None:
    with pytest.raises(ValueError, match=r"shape \(5,\), as for one sample .* DataLoader\(dataset, batch_size=128\)"):
        pnml.guard(mlp()).fit(samples, progress=False)


def test_arrays_say_how_to_make_them_tensors() -> None:
    with pytest.raises(TypeError, match=r"yielded ndarray: .* inputs=lambda batch: torch\.as_tensor\(batch\)\)"):
        pnml.guard(mlp()).fit([X.numpy()], progress=False)
    guard = pnml.guard(mlp(), inputs=torch.as_tensor).fit([X.numpy()], progress=False)
    assert torch.equal(guard(X).regret, regret_of_x())


def test_empty_batches_among_others_are_passed_over() -> None:
    expected = regret_of_x()
    guard = pnml.guard(mlp()).fit([X[:0], X, X[:0]], progress=False)
    torch.testing.assert_close(guard(X).regret, expected)
    assert guard.calibrate([X[:0], X], leave_one_out=True, progress=False).count == 40


def test_hugging_face_models_by_position_and_by_name() -> None:
    """All arguments of their forward are optional, labels among them."""
    text, image = bert(), vit()
    batch = sentences(6)
    args, kwargs = inputs_of({**batch, "idx": torch.arange(6)}, text)
    assert args == ()
    assert set(kwargs) - {"idx"} == {"input_ids", "attention_mask"}, "without labels"
    args, kwargs = inputs_of((batch["input_ids"], batch["labels"]), text)
    assert (len(args), kwargs) == (1, {})
    with pytest.raises(ValueError, match=r"inputs=lambda batch: batch\[:2\]"):
        inputs_of((batch["input_ids"], batch["attention_mask"], batch["labels"]), text)
    pixels = torch.zeros(2, 3, 8, 8)
    args, kwargs = inputs_of({"pixel_values": pixels, "labels": torch.zeros(2)}, image)
    assert (args, list(kwargs)) == ((), ["pixel_values"])


def test_tensors_inside_lists_and_dicts_go_to_the_models_device() -> None:
    model = mlp().to("meta")
    (nested,), kwargs = inputs_of(X, model, lambda x: (([x, {"x": x}],), {"flag": True, "pair": (x, 1)}))
    assert [nested[0].device.type, nested[1]["x"].device.type, kwargs["pair"][0].device.type] == ["meta"] * 3
    assert kwargs["flag"] is True


def test_an_object_that_a_model_takes_whole_is_suggested_as_its_argument() -> None:
    class Graph(dict[str, Tensor]):
        """What holds tensors by name, as of PyTorch Geometric."""

    class Takes(nn.Module):
        def forward(self, data: Graph) -> Tensor:
            return data["x"]

    batch = Graph(x=X, edges=X)
    with pytest.raises(ValueError, match=r"inputs=lambda batch: \(batch,\)\)"):
        inputs_of(batch, Takes())
    assert inputs_of(batch, Takes(), lambda batch: (batch,))[0][0] is batch
    with pytest.raises(ValueError, match=r"takes the whole dict it is \(batch,\)$"):
        inputs_of(dict(batch), Takes())
