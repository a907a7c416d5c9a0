"""Guarding a classifier: fit, calibrate, use, save, load, and what is said when something is wrong."""

from __future__ import annotations

import copy
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pnml
from oracles import by_pseudo_inverse
from pnml.core.detector import ZeroEmbeddingWarning
from pnml.pytorch.head import HeadWarning

from .networks import CLASSES, CNN, bert, images, loader, mlp, rows, sentences

if TYPE_CHECKING:
    from pathlib import Path


def naive_regret(guard: pnml.Guard, train: Tensor, x: Tensor) -> np.ndarray[Any, Any]:
    """Compute the regret of embeddings alone in float64, of "paper" and "natural" from the formulas."""
    weight, bias, seen, fresh = (t.detach().double().numpy() for t in (guard.head.weight, guard.head.bias, train, x))
    if guard.embedding_scale != "auto":
        return by_pseudo_inverse(weight, bias, seen, fresh, guard.embedding_scale)["regret"]
    return pnml.Detector(weight, bias).fit(seen).score(fresh)  # type: ignore[no-any-return]


@pytest.mark.parametrize("embedding_scale", ["auto", "paper", "natural"])
def test_scores_are_the_detectors_on_embeddings_taken_by_hand(embedding_scale: Any) -> None:
    model = CNN().eval()
    guard = pnml.guard(model, layers="last", embedding_scale=embedding_scale).fit(loader(images(100)), progress=False)
    with torch.no_grad():
        train, fresh = model.features(images(100)), model.features(images(20, seed=1))
    head = model.classifier
    detector = pnml.Detector(head.weight, head.bias, embedding_scale=embedding_scale).fit(train)
    result, expected = guard(images(20, seed=1)), detector(fresh)
    for name in ("regret", "xtg", "pnml_probabilities"):
        torch.testing.assert_close(getattr(result, name), getattr(expected, name), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result.regret.numpy(), naive_regret(guard, train, fresh), rtol=1e-4)


def test_result_carries_the_models_own_answer() -> None:
    model = mlp().eval()
    x = rows(20)
    result = pnml.guard(model).fit(loader(rows(100)), progress=False)(x)
    with torch.no_grad():
        logits = model(x)
    assert torch.equal(result.logits, logits)
    assert torch.equal(result.prediction, logits.argmax(dim=-1))
    torch.testing.assert_close(result.probabilities, logits.softmax(dim=-1))
    assert not result.is_calibrated


def test_calibrated_decisions_are_those_of_the_threshold() -> None:
    guard = pnml.guard(mlp()).fit(loader(rows(200)), progress=False)
    batch = rows(199, seed=1)  # one batch for both: the 180th must get the very number that became the threshold
    threshold = guard.calibrate([batch], false_alarm_rate=0.1, progress=False)
    held_out = guard(batch)
    assert threshold.source == "held-out"
    assert threshold.count == 199
    assert int(held_out.is_ood.sum()) == 19, "strictly above the 180th of 199"
    expected = [(held_out.regret >= regret).sum().add(1) / 200 for regret in held_out.regret]
    torch.testing.assert_close(held_out.p_value, torch.stack(expected))


@pytest.mark.parametrize(("rate", "said"), [(1, "got 1: 1% is 0.01"), ("5%", "got '5%'"), (math.nan, "got nan")])
def test_a_rate_that_is_none_is_refused_before_the_pass(rate: Any, said: str) -> None:
    guard = pnml.guard(mlp()).fit([rows(50)], progress=False)
    with pytest.raises(ValueError, match=f"^false_alarm_rate must lie between 0 and 1, {said}$"):
        guard.calibrate(iter(()), false_alarm_rate=rate)  # nothing is read of it


def test_leave_one_out_calibration_scores_each_row_as_if_unseen() -> None:
    model, train = mlp().eval(), rows(30)
    guard = pnml.guard(model, layers="last", embedding_scale="paper").fit([train], progress=False)
    threshold = guard.calibrate([train], leave_one_out=True, progress=False)
    with torch.no_grad():
        embeddings = model[:-1](train)
    scores = []
    for i in range(30):
        others = torch.cat([embeddings[:i], embeddings[i + 1 :]])
        scores.append(naive_regret(guard, others, embeddings[i : i + 1])[0])
    assert threshold.source == "leave-one-out"
    np.testing.assert_allclose(threshold.scores, np.sort(scores), rtol=1e-4)


def test_batches_may_be_tensors_tuples_lists_dicts_and_dicts_in_tuples() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, pixels: Tensor, *, doubled: bool = False) -> Tensor:
            logits: Tensor = self.inner(pixels * 2 if doubled else pixels)
            return logits

    model, x, y = Named(), rows(40), torch.zeros(40)
    reference = pnml.guard(model).fit([x], progress=False)(x).regret
    named = {"pixels": x, "labels": y, "target": y, "doubled": False}
    for batch in [(x, y), [x, y], (x,), named, (named, y)]:
        assert torch.equal(pnml.guard(model).fit([batch], progress=False)(x).regret, reference)
    with_flag = pnml.guard(model).fit([{"pixels": x, "doubled": True}], progress=False)(x, doubled=True)
    assert not torch.equal(with_flag.regret, reference)


@pytest.mark.parametrize(("batch", "kind"), [(3, "int"), ((), "tuple"), (("a", 1), "str"), (np.zeros(3), "ndarray")])
def test_other_batches_are_refused(batch: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"the loader yielded {kind}: expected a tensor"):
        pnml.guard(mlp()).fit([batch], progress=False)


def test_a_tensor_is_no_loader() -> None:
    with pytest.raises(TypeError, match=r"got a tensor of shape \(4, 8\): wrap it, \[x\]"):
        pnml.guard(mlp()).fit(rows(4), progress=False)


@pytest.mark.slow
def test_transformers_from_dicts_with_labels() -> None:
    model = bert()
    guard = pnml.guard(model, layers="last").fit([sentences(20, seed) for seed in range(4)], progress=False)
    assert guard.head_name == "classifier"
    batch = sentences(10, seed=9)
    result = guard(**batch)
    with torch.no_grad():
        embeddings = [
            model.bert(b["input_ids"], b["attention_mask"]).pooler_output
            for b in (batch, *(sentences(20, seed) for seed in range(4)))
        ]
        assert torch.equal(result.logits, model(**batch).logits)
    expected = naive_regret(guard, torch.cat(embeddings[1:]), embeddings[0])
    np.testing.assert_allclose(result.regret.numpy(), expected, rtol=1e-4)


@pytest.mark.parametrize("embedding_scale", ["auto", "paper", "natural"])
def test_save_and_load(embedding_scale: Any, tmp_path: Path) -> None:
    model, x = mlp(), rows(20, seed=2)
    guard = pnml.guard(model, embedding_scale=embedding_scale).fit(loader(rows(100)), progress=False)
    guard.calibrate(loader(rows(100, seed=1)), progress=False)
    guard.save(tmp_path / "detector.safetensors")
    loaded = pnml.guard(model).load(tmp_path / "detector.safetensors")
    assert loaded.head_name == "3"
    assert loaded.embedding_scale == embedding_scale
    assert loaded.fitted().embedding_length == guard.fitted().embedding_length
    assert (loaded.fitted().embedding_length != 1) == (embedding_scale == "auto")
    assert loaded.fitted().threshold == guard.fitted().threshold
    for name, column in guard(x).to_table().items():
        np.testing.assert_array_equal(loaded(x).to_table()[name], column)


def test_load_refuses_a_detector_of_another_head(tmp_path: Path) -> None:
    path = tmp_path / "detector.safetensors"
    pnml.guard(mlp(seed=0)).fit([rows(50)], progress=False).save(path)
    with pytest.raises(ValueError, match="another last layer: one of 12 features and 5 classes with digest"):
        pnml.guard(mlp(seed=1)).load(path)
    with pytest.raises(ValueError, match="fitted for the head '3': make the guard with head='3'"):
        pnml.guard(mlp(seed=0), head="0").load(path)


def test_nothing_works_before_fit(tmp_path: Path) -> None:
    guard = pnml.guard(mlp())
    for attempt in (
        lambda: guard(rows(2)),
        lambda: guard.calibrate([rows(2)]),
        lambda: guard.save(tmp_path / "none.safetensors"),
    ):
        with pytest.raises(ValueError, match="not fitted: call fit"):
            attempt()
    with pytest.raises(ValueError, match="the head is not known yet"):
        _ = guard.head
    assert list(tmp_path.iterdir()) == []


def test_empty_loaders() -> None:
    guard = pnml.guard(mlp())
    with pytest.raises(ValueError, match="no samples: nothing to fit"):
        guard.fit([], progress=False)
    guard.fit([rows(50), rows(0)], progress=False)
    with pytest.raises(ValueError, match="no samples: nothing to calibrate on"):
        guard.calibrate([], progress=False)


def test_nan_names_batch_and_row_and_loses_nothing() -> None:
    guard = pnml.guard(mlp()).fit([rows(50)], progress=False)
    before = guard(rows(5)).regret
    bad = rows(16, seed=1)
    bad[11, 3] = math.nan
    for work in (guard.fit, guard.calibrate):
        with pytest.raises(ValueError, match=r"batch 1 of the loader: row 11 holds nan"):
            work([rows(16), bad], progress=False)
    assert guard(bad).regret.isnan().nonzero().tolist() == [[11]], "a call flags it instead"
    assert torch.equal(guard(rows(5)).regret, before)


def test_named_heads() -> None:
    with pytest.raises(ValueError, match=r"head 'fc' is no module of the model; its linear layers are \['0', '3'\]"):
        pnml.guard(mlp(), head="fc")
    with pytest.warns(HeadWarning, match="its head '0' puts out, nor a scaling of it.*as declared"):
        pnml.guard(mlp(), head="0").fit([rows(10)], progress=False)
    found, named = (pnml.guard(mlp(), head=head).fit([rows(50)], progress=False) for head in (None, "3"))
    assert torch.equal(found(rows(5)).regret, named(rows(5)).regret)


def test_deep_copies_are_independent() -> None:
    guard = pnml.guard(mlp()).fit([rows(50)], progress=False)
    before = guard(rows(5)).regret
    copied = copy.deepcopy(guard)
    assert torch.equal(copied(rows(5)).regret, before)
    copied.fit([rows(50, seed=1) * torch.arange(8)], progress=False)
    assert torch.equal(guard(rows(5)).regret, before)
    assert not torch.equal(copied(rows(5)).regret, before)


def test_state_dict_is_the_models() -> None:
    model = mlp()
    guard = pnml.guard(model).fit([rows(50)], progress=False)
    guard(rows(5))
    assert list(guard.state_dict()) == [f"model.{name}" for name in model.state_dict()]


@pytest.mark.parametrize("shown", [True, False])
def test_progress_is_shown_on_stderr_when_asked(shown: bool, capfd: pytest.CaptureFixture[str]) -> None:  # noqa: FBT001
    guard = pnml.guard(mlp()).fit(loader(rows(64)), progress=shown)
    guard.calibrate((batch for batch in loader(rows(64, seed=1))), progress=shown)
    out, err = capfd.readouterr()
    assert out == ""
    assert [what in err for what in ("fit", "4/4", "calibrate", "4/?")] == [shown] * 4


def test_progress_stops_when_something_goes_wrong() -> None:
    before = set(threading.enumerate())
    with pytest.raises(ValueError, match="batch 1") as caught:
        pnml.guard(mlp()).fit([rows(10), rows(10) * math.nan], progress=True)
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=5)
        assert not thread.is_alive(), "the bar goes on while the error, and all it refers to, is at hand"
    assert caught.value.__cause__ is not None


def test_threads_get_their_own_answers() -> None:
    together = threading.Barrier(2, timeout=10)

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, CLASSES)
            self.wait = False

        def forward(self, x: Tensor) -> Tensor:
            if self.wait:
                together.wait()
            x = self.first(x)
            if self.wait:
                together.wait()
            logits: Tensor = self.last(x.tanh())
            if self.wait:
                together.wait()
            return logits.clone()

    model = Shared().eval()
    guard = pnml.guard(model).fit([rows(200)], progress=False)
    assert guard.layers == ("first", "input")
    expected = [guard(rows(64, seed)).regret for seed in range(2)]
    model.wait = True
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda seed: guard(rows(64, seed)).regret, range(2))
    assert all(map(torch.equal, results, expected))


def test_samples_without_an_active_feature_are_left_out_of_the_fit_and_flagged() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Linear(3, 2))
    x = torch.rand(20, 3)
    with pytest.warns(ZeroEmbeddingWarning, match="2 of [0-9]+ training rows have norm 0"):
        guarded = pnml.guard(model, layers="last").fit([x, torch.full((2, 3), -1.0)], progress=False)
    found = guarded.fitted().correlation
    expected = pnml.guard(model, layers="last").fit([x], progress=False).fitted().correlation
    assert (found.count, found.left_out) == (20, 2)
    np.testing.assert_allclose(found.matrix, expected.matrix, rtol=20 * float(np.finfo(np.float32).eps))
    guarded.calibrate([x], leave_one_out=True, progress=False)
    result = guarded(torch.full((1, 3), -1.0))
    torch.testing.assert_close(result.regret, torch.tensor([2.0]).log())
    assert result.is_ood is not None
    assert result.is_ood.tolist() == [True]
