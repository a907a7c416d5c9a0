"""The guard with earlier layers: what is chosen, what falls back, what is stored, and that padding changes nothing."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pnml
from oracles import NOISE, about_class_means, balanced_head, by_pseudo_inverse
from pnml.backend.state import save_state
from pnml.pytorch.layers import COUNT, Layer, LayersNotFoundError, LayersNotFoundWarning
from pnml.pytorch.recording import LayerPlaces

from .architectures import Encoder, Repeated, cases, sequences
from .networks import CLASSES, CNN, bert, images, loader, mlp, rows, seeded, sentences

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CASES = cases()


class Skipping(nn.Module):
    """Calls one of its layers only for batches of another size than 20 rows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) != 20:
            self.first(x)
        logits: Tensor = self.last(x)
        return logits


def test_scores_are_those_of_every_layer_taken_by_hand() -> None:
    model = CNN().eval()
    guard = pnml.guard(model).fit(loader(images(120)), progress=False)
    assert guard.layers == ("body.0", "body.2"), "the convolution, and its normalised activation"

    def by_hand(x: Tensor) -> list[np.ndarray[Any, Any]]:
        with torch.no_grad():
            maps = [model.body[:1](x).double().numpy(), model.body(x).double().numpy()]
        pooled = [np.hstack([m.mean(axis=(2, 3)), m.std(axis=(2, 3))]) for m in maps]
        return [maps[1].mean(axis=(2, 3)), *pooled]

    geometry = guard.fitted().geometry
    assert geometry is not None
    embedding, *layers = geometry.scatters
    ridges = [embedding.ridge, geometry.background.ridge, *(layer.ridge for layer in layers)]
    weight, bias = (t.detach().double().numpy() for t in (model.classifier.weight, model.classifier.bias))
    fresh = images(40, seed=1) * torch.linspace(0.2, 4, 40)[:, None, None, None]
    expected = about_class_means(weight, bias, by_hand(images(120)), by_hand(fresh), ridges)
    result = guard(fresh)
    assert (expected["leverage_by_layer"] > 0).any(axis=0).all(), "every layer has a say"
    for name in ("regret", "xtg", "pnml_probabilities", "leverage_by_layer"):
        np.testing.assert_allclose(getattr(result, name), expected[name], rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_every_architecture_is_guarded_by_default(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    batch = case.kwargs or case.args[0]
    guard = pnml.guard(case.model).fit([batch, batch], progress=False)
    assert 1 <= len(guard.layers) <= COUNT
    result = guard(*case.args, **case.kwargs)
    assert result.leverage_by_layer.shape == (9, 1 + len(guard.layers))
    assert bool(result.regret.isfinite().all())
    guard.calibrate([batch], false_alarm_rate=0.2, progress=False)
    guard.save(tmp_path / "detector.safetensors")
    loaded = pnml.guard(case.model).load(tmp_path / "detector.safetensors")
    assert loaded.layers == guard.layers
    assert torch.equal(loaded(*case.args, **case.kwargs).regret, guard(*case.args, **case.kwargs).regret)
    assert loaded.found_layers == guard.found_layers


def test_named_layers() -> None:
    guard = pnml.guard(CNN(), layers=["body.1", "body"])
    assert guard.layers == ("body.1", "body")
    guard.fit(loader(images(60)), progress=False)
    assert guard.fitted().layer_names == guard.layers == ("body.1", "body")
    assert guard.fitted().feature_widths == (24, 24)
    single = pnml.guard(CNN(), layers=[])
    assert single.fit(loader(images(60)), progress=False).layers == ()


def test_layers_that_are_not_there_are_refused_by_name() -> None:
    with pytest.raises(
        ValueError, match=r"layer 'body\.7' is no module of the model; some of its modules are \['body'"
    ):
        pnml.guard(CNN(), layers=["body.0", "body.7"])
    for again in ("body", "body#0"):
        with pytest.raises(ValueError, match=f"layer '{again}' is named twice"):
            pnml.guard(CNN(), layers=["body", again])
    with pytest.raises(ValueError, match=r"layer 'body#last' must have the number of a call after #.* '"):
        pnml.guard(CNN(), layers=["body#last"])
    with pytest.raises(LayersNotFoundError, match=r"no module 'body#1' was called .*; some that were: \['body'"):
        pnml.guard(CNN(), layers=["body#1"]).fit([images(10)], progress=False)
    with pytest.raises(ValueError, match='layers must be "auto", "last" or a list of names of modules, got \'body\''):
        pnml.guard(CNN(), layers="body")
    with pytest.raises(LayersNotFoundError, match="no module 'classifier' was called before the head"):
        pnml.guard(CNN(), layers=["classifier"]).fit([images(10)], progress=False)


@pytest.mark.parametrize("embedding_scale", ["paper", "natural"])
def test_other_scales_are_for_embeddings_alone(embedding_scale: Any) -> None:
    guard = pnml.guard(CNN(), embedding_scale=embedding_scale).fit([images(40)], progress=False)
    assert guard.layers == ()
    with pytest.raises(ValueError, match=f"need embedding_scale=\"auto\", got '{embedding_scale}'"):
        pnml.guard(CNN(), layers=["body"], embedding_scale=embedding_scale)


def test_repr_is_short_and_says_what_is_watched() -> None:
    guard = pnml.guard(CNN())
    assert repr(guard) == "Guard(CNN, head auto, layers auto, not fitted)"
    guard.fit(loader(images(60)), progress=False)
    assert repr(guard).startswith("Guard(CNN, head classifier, layers ['body.0', 'body.2'], fitted on 60 samples, not")
    guard.calibrate([images(30, seed=1)], progress=False)
    assert "calibrated" in repr(guard)
    assert "not calibrated" not in repr(guard)
    last = pnml.guard(mlp(), layers="last").fit([rows(30)], progress=False)
    assert "layers last" in repr(last)


@pytest.mark.parametrize("model", [nn.Linear(8, CLASSES), nn.Sequential(nn.Identity(), nn.Linear(8, CLASSES))])
def test_a_model_without_earlier_layers_falls_back(model: nn.Module) -> None:
    with pytest.warns(LayersNotFoundWarning, match="The embeddings alone are watched, as with layers='last'") as caught:
        guard = pnml.guard(model).fit(loader(rows(64)), progress=False)
    assert len(caught) == 1
    assert guard.layers == ()
    last = pnml.guard(model, layers="last").fit(loader(rows(64)), progress=False)
    assert torch.equal(guard(rows(9)).regret, last(rows(9)).regret)


def test_a_layer_missing_in_a_later_batch_is_left_out_of_the_fit() -> None:
    batches = [rows(40), rows(20, seed=1), rows(30, seed=2)]
    with pytest.warns(
        LayersNotFoundWarning, match=r"layers \['first'\] did not put out one entry per sample"
    ) as caught:
        guard = pnml.guard(Skipping()).fit(batches, progress=False)
    assert len(caught) == 1
    assert guard.layers == ()
    assert guard.fitted().feature_widths == ()
    last = pnml.guard(Skipping(), layers="last").fit(batches, progress=False)
    found, expected = guard.fitted().correlation.matrix, last.fitted().correlation.matrix
    np.testing.assert_allclose(found, expected, rtol=0, atol=90 * np.finfo(np.float64).eps)  # 90 rows of norm 1
    torch.testing.assert_close(guard(rows(9)).regret, last(rows(9)).regret, rtol=1e-4, atol=1e-7)
    with pytest.raises(ValueError, match=r"batch 1 of the loader: layers \['first'\] did not put out"):
        pnml.guard(Skipping(), layers=["first"]).fit(batches, progress=False)


def test_a_layer_missing_when_scoring_raises() -> None:
    guard = pnml.guard(Skipping()).fit([rows(40), rows(30)], progress=False)
    assert guard.layers == ("first",)
    with pytest.raises(ValueError, match=r"layers \['first'\] did not put out one entry per sample"):
        guard(rows(20))
    with pytest.raises(ValueError, match=r"batch 0 of the loader: layers \['first'\]"):
        guard.calibrate([rows(20)], progress=False)


def test_a_layer_that_changes_its_width_is_left_out_of_the_fit() -> None:
    class Flat(nn.LayerNorm):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).flatten(1)

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat, self.last = Flat(5), nn.Linear(5, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            self.flat(x)
            logits: Tensor = self.last(x.mean(dim=1))
            return logits

    batches = [sequences(40), sequences(40, length=9)]
    with pytest.warns(LayersNotFoundWarning, match="layer 'flat' had 35 features, and has 45 now"):
        guard = pnml.guard(Wide()).fit(batches, progress=False)
    assert guard.layers == ()
    last = pnml.guard(guard.model, layers="last").fit(batches, progress=False)
    torch.testing.assert_close(guard(sequences(9)).regret, last(sequences(9)).regret, rtol=1e-4, atol=1e-7)


def test_a_failing_fit_leaves_the_guard_as_it_was() -> None:
    guard = pnml.guard(CNN()).fit([images(60)], progress=False)
    before, layers = guard(images(9)).regret, guard.layers
    with pytest.raises(ValueError, match="batch 1 of the loader"):
        guard.fit([images(9), images(9) * torch.nan], progress=False)
    assert guard.layers == layers
    assert torch.equal(guard(images(9)).regret, before)


def test_layers_are_found_with_a_few_samples_of_the_first_batch() -> None:
    sizes = []
    model = CNN()
    model.body.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    pnml.guard(model).fit(loader(images(64)), progress=False)
    few = [size for size in sizes if size != 16]
    assert min(few) <= 4
    assert max(few) <= 8  # those of the trial that asks whether samples change each other


def test_a_model_that_takes_only_whole_batches() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.inner(x.reshape(16, 8))
            return logits

    assert pnml.guard(Fixed()).fit(loader(rows(64)), progress=False).layers == ("inner.0",)


@pytest.mark.parametrize("how", ["keyword", "position"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_padding_changes_no_score(batch_first: bool, how: str) -> None:  # noqa: FBT001
    torch.manual_seed(0)
    model = Encoder(batch_first=batch_first).eval()
    train = [{"x": sequences(40, length=7, seed=seed), "padding_mask": None} for seed in range(4)]
    guard = pnml.guard(model).fit(train, progress=False)
    assert len(guard.layers) > 1
    x = sequences(9, seed=9)
    padded = torch.cat([x, torch.full((9, 4, 5), 50.0)], dim=1)
    mask = torch.zeros(9, 11, dtype=torch.bool)
    mask[:, 7:] = True
    result = guard(x=padded, padding_mask=mask) if how == "keyword" else guard(padded, mask)
    expected = guard(x)
    torch.testing.assert_close(result.logits, expected.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result.leverage_by_layer, expected.leverage_by_layer, rtol=1e-2, atol=1e-4)
    torch.testing.assert_close(result.regret, expected.regret, rtol=2e-2, atol=1e-5)
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.slow
def test_padding_changes_no_score_of_a_text_model() -> None:
    model = bert()
    guard = pnml.guard(model).fit([sentences(40, seed) for seed in range(4)], progress=False)
    batch = sentences(9, seed=9)
    short = {name: batch[name][:, :6] for name in ("input_ids", "attention_mask")}
    padded = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"].clone()}
    padded["attention_mask"][:, 6:] = 0
    found, expected = guard(**padded), guard(**short)
    torch.testing.assert_close(found.leverage_by_layer, expected.leverage_by_layer, rtol=1e-2, atol=1e-4)
    torch.testing.assert_close(found.regret, expected.regret, rtol=2e-2, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_layers(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = CNN().eval()
    guard = pnml.guard(model).fit(loader(images(120)), progress=False)
    half = pnml.guard(CNN().eval().to(dtype))
    half.model.load_state_dict(model.state_dict())
    half.fit(loader(images(120).to(dtype)), progress=False)
    assert half.layers == guard.layers
    found, expected = half(images(60, seed=1).to(dtype)).regret, guard(images(60, seed=1)).regret
    assert found.dtype == torch.float32
    assert float(np.corrcoef(found.argsort().argsort(), expected.argsort().argsort())[0, 1]) > 0.9


def test_calls_of_a_shared_module_are_stored_and_found_again(tmp_path: Path) -> None:
    model = Repeated().eval()
    x = torch.randn(50, 8, generator=seeded())
    guard = pnml.guard(model, layers=["block#2", "block"]).fit([x], progress=False)
    guard.save(tmp_path / "detector.safetensors")
    loaded = pnml.guard(model).load(tmp_path / "detector.safetensors")
    assert loaded.layers == ("block#2", "block")
    assert torch.equal(loaded(x).regret, guard(x).regret)


def test_load_refuses_layers_that_the_model_does_not_have(tmp_path: Path) -> None:
    model = mlp()
    with torch.no_grad():
        embeddings = model.eval()[:3](rows(50))
    detector = pnml.Detector(model[3].weight, model[3].bias).fit(embeddings, features=[embeddings[:, :2]])
    detector.save(tmp_path / "detector.safetensors")
    told = "detector.safetensors has features of layers that are not .*: layer 'layer0' is no module of the model"
    with pytest.raises(ValueError, match=told):
        pnml.guard(model).load(tmp_path / "detector.safetensors")


def test_files_of_the_first_version_are_of_embeddings_alone(tmp_path: Path) -> None:
    model = mlp().eval()
    with torch.no_grad():
        train, fresh = (model[:3](rows(n, seed)).double().numpy() for n, seed in ((200, 0), (20, 1)))
    weight, bias = (model.get_parameter(f"3.{name}").detach().double().numpy() for name in ("weight", "bias"))
    units = train / np.linalg.norm(train, axis=1, keepdims=True)
    eigenvalues, eigenvectors = np.linalg.eigh(units.T @ units)
    arrays = {"weight": weight, "bias": bias, "eigenvalues": eigenvalues[::-1], "eigenvectors": eigenvectors[:, ::-1]}
    length, scaled = balanced_head(train, weight, bias)
    info = {
        "count": len(train),
        "norm_sum": float(np.linalg.norm(train, axis=1).sum()),
        "embedding_scale": "auto",
        "embedding_length": length,
        "bias_scale": float((scaled / bias)[0]),
        "label_noise": NOISE,
        "threshold": None,
    }
    save_state(tmp_path / "first.safetensors", "pnml.detector", 1, arrays, info)
    guard = pnml.guard(model).load(tmp_path / "first.safetensors")
    assert guard.layers == ()
    expected = by_pseudo_inverse(weight, bias, train, fresh, at=(length, scaled))
    np.testing.assert_allclose(guard(rows(20, seed=1)).regret, expected["regret"], rtol=1e-2)


def test_no_warning_where_layers_are_watched() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pnml.guard(mlp()).fit(loader(rows(64)), progress=False).layers == ("0",)


def test_layers_are_looked_for_again_when_a_module_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    model = CNN().eval()
    guard = pnml.guard(model, layers=["body.0"]).fit([images(60)], progress=False)
    made: list[LayerPlaces] = []
    make = LayerPlaces.__init__

    def count(places: LayerPlaces, model: nn.Module, layers: Sequence[Layer]) -> None:
        made.append(places)
        make(places, model, layers)

    monkeypatch.setattr(LayerPlaces, "__init__", count)
    expected = [guard(images(4)).regret for _ in range(3)]
    assert not made  # fit has found them
    model.body[0] = copy.deepcopy(model.body[0])
    torch.testing.assert_close(guard(images(4)).regret, expected[0])
    assert len(made) == 1
    other: Any = copy.deepcopy(guard)
    other.model.body[0] = copy.deepcopy(model.body[0])
    torch.testing.assert_close(other(images(4)).regret, expected[0])
    guard.found_layers = (Layer("body.2"),)
    assert not torch.equal(guard(images(4)).regret, expected[0])
