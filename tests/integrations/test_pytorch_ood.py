"""Test the adapter with the pytorch-ood package."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

from oracles import by_pseudo_inverse
from pnml import Detector
from pnml.core.detector import ZeroEmbeddingWarning
from pnml.core.scorer import LARGEST_ERROR
from pnml.integrations._import import import_pytorch_ood
from pnml.integrations.pytorch_ood import PNML
from pnml.pytorch.layers import LayersNotFoundWarning

from .factories import CLASSES, FEATURES, Classifier, classifier, inputs, regret_anew

pytorch_ood = import_pytorch_ood("this test")
benchmark = import_module("pytorch_ood.benchmark")
TRAIN = TensorDataset(inputs(500, seed=0), torch.arange(500) % CLASSES)


@pytest.fixture
def model() -> Classifier:
    return classifier()


@pytest.fixture
def fitted(model: Classifier) -> PNML:
    return PNML(encoder=model.features, head=model.fc).fit(DataLoader(TRAIN, batch_size=64))


def test_adapter_is_a_features_detector_that_requires_fitting(model: Classifier) -> None:
    detector = PNML(encoder=model.features, head=model.fc)
    assert isinstance(detector, pytorch_ood.api.FeaturesDetector)
    assert detector.requires_fit
    assert pytorch_ood.api.Task.CLASSIFICATION in PNML.info.tasks
    with pytest.raises(pytorch_ood.api.RequiresFittingException):
        detector.predict(inputs(2, seed=1))


def test_inputs_are_scored_by_all_layers_and_features_by_themselves(model: Classifier, fitted: PNML) -> None:
    x, train = inputs(30, seed=1), TRAIN.tensors[0]
    assert fitted.detector is not None
    assert fitted.detector.layer_names == ("encoder.body", "input")
    np.testing.assert_allclose(fitted(x), regret_anew(model, train, x), rtol=LARGEST_ERROR)
    found = fitted.predict_features(model.layers(x)[0])
    np.testing.assert_allclose(found, regret_anew(model, train, x, alone=True), rtol=LARGEST_ERROR)


@pytest.mark.parametrize("kind", ["module", "method", "function", "last"])
def test_layers_of_encoders(kind: str, model: Classifier) -> None:
    module = nn.Sequential(model.body, nn.Tanh())
    encoders: dict[str, Any] = {
        "module": module,
        "method": model.features,
        "function": partial(Classifier.features, model),
        "last": module,
    }
    layers = "last" if kind == "last" else "auto"
    says = pytest.warns(LayersNotFoundWarning, match="the encoder is a partial, neither a module nor a method of one")
    with says if kind == "function" else nullcontext():
        found = PNML(encoders[kind], model.fc, layers=layers).fit(DataLoader(TRAIN, batch_size=64))
    names = {"module": ("encoder.0", "input"), "method": ("encoder.body", "input")}
    assert found.detector is not None
    assert found.detector.layer_names == names.get(kind, ())
    x = inputs(30, seed=1)
    expected = regret_anew(model, TRAIN.tensors[0], x, alone=kind not in names)
    np.testing.assert_allclose(found(x), expected, rtol=LARGEST_ERROR)


def test_named_layers_of_the_encoder(model: Classifier) -> None:
    found = PNML(model.features, model.fc, layers=["body"]).fit(DataLoader(TRAIN, batch_size=64))
    assert found.detector is not None
    assert found.detector.layer_names == ("encoder.body",)
    with pytest.raises(ValueError, match=r"layer 'encoder\.nowhere' is no module"):
        PNML(model.features, model.fc, layers=["nowhere"])
    with pytest.raises(ValueError, match=r"layers=\['body'\] cannot be watched: the encoder is a function"):
        PNML(lambda x: x, model.fc, layers=["body"])


@pytest.mark.parametrize("layers", ["auto", "last"])
def test_an_encoder_in_training_mode_is_run_in_eval_mode_and_stays_as_it_was(layers: str, model: Classifier) -> None:
    encoder = nn.Sequential(model.body, nn.BatchNorm1d(FEATURES), nn.Dropout(0.5)).eval()
    loader, x = DataLoader(TRAIN, batch_size=64), inputs(30, seed=1)
    expected = PNML(encoder, model.fc, layers=layers).fit(loader)(x)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.train()
    torch.testing.assert_close(PNML(encoder, model.fc, layers=layers).fit(loader)(x), expected)
    assert all(module.training for module in encoder.modules())
    torch.testing.assert_close(encoder.state_dict(), before, rtol=0, atol=0)


def test_features_fitted_after_inputs_replace_them(model: Classifier, fitted: PNML) -> None:
    x = inputs(30, seed=1)
    fitted.fit_features(train_features(model), TRAIN.tensors[1])
    torch.testing.assert_close(fitted(x), fitted.predict_features(model.layers(x)[0]))


def train_features(model: Classifier) -> Tensor:
    with torch.no_grad():
        return model.features(TRAIN.tensors[0])


@pytest.mark.parametrize("scale", ["auto", "paper", "natural"])
def test_embedding_scale_is_used(scale: Any, model: Classifier) -> None:
    scaled = PNML(None, model.fc, embedding_scale=scale).fit_features(train_features(model), TRAIN.tensors[1])
    expected = Detector(model.fc.weight, model.fc.bias, embedding_scale=scale).fit(train_features(model))
    rows = train_features(model)[:20]
    torch.testing.assert_close(scaled.predict_features(rows), expected.score(rows), rtol=1e-6, atol=1e-7)


def test_fit_ignores_samples_of_negative_label(model: Classifier, fitted: PNML) -> None:
    ood = TensorDataset(inputs(40, seed=3, scale=9), torch.full((40,), -1))
    both = PNML(encoder=model.features, head=model.fc).fit(DataLoader(ConcatDataset([TRAIN, ood]), batch_size=20))
    x = inputs(10, seed=1)
    torch.testing.assert_close(both(x), fitted(x), rtol=2 * LARGEST_ERROR, atol=0)
    with pytest.raises(ValueError, match="no samples: nothing to fit"):
        PNML(encoder=model.features, head=model.fc).fit(DataLoader(ood, batch_size=20))
    with pytest.raises(ValueError, match="at least one in-distribution sample"):
        PNML(encoder=model.features, head=model.fc, layers="last").fit(DataLoader(ood, batch_size=20))


def test_metrics_of_pytorch_ood_accept_the_scores(fitted: PNML) -> None:
    x, y = torch.cat([inputs(60, seed=1), inputs(40, seed=2, scale=4)]), torch.tensor([0] * 60 + [-1] * 40)
    metrics = pytorch_ood.metrics.OODMetrics()
    for start in range(0, 100, 25):
        metrics.update(fitted(x[start : start + 25]), y[start : start + 25])
    assert metrics.compute()["AUROC"] == pytest.approx(roc_auc_score(y < 0, fitted(x).numpy()), abs=1e-6)


class SyntheticBenchmark(benchmark.Benchmark):  # type: ignore[misc, name-defined]  # the package has no types
    """A benchmark of pytorch-ood on synthetic inputs."""

    ood_names = ("wide", "narrow")

    def train_set(self) -> TensorDataset:
        return TRAIN

    def test_sets(self, known: bool = True, unknown: bool = True) -> list[Any]:  # noqa: FBT001, FBT002 - signature of pytorch-ood
        ind = TensorDataset(inputs(60, seed=1), torch.zeros(60, dtype=torch.long))
        oods = [TensorDataset(inputs(40, seed=2, scale=s), torch.full((40,), -1)) for s in (4.0, 0.1)]
        return [ConcatDataset([ind, ood]) for ood in oods]


def test_benchmark_of_pytorch_ood_agrees_with_its_own_pnml(model: Classifier) -> None:
    synthetic = SyntheticBenchmark()
    loader = DataLoader(synthetic.train_set(), batch_size=50)
    original = pytorch_ood.detector.PNML(encoder=model.features, head=model.fc).fit(loader)
    adapter = PNML(encoder=model.features, head=model.fc, embedding_scale="paper").fit(
        loader
    )  # the scale of pytorch-ood
    found = synthetic.evaluate([original, adapter], loader_kwargs={"batch_size": 30}, cache=True)
    assert [result["Dataset"] for result in found] == ["wide", "wide", "narrow", "narrow"]
    for first, second in zip(found[::2], found[1::2], strict=True):  # the features are well conditioned
        assert first["AUROC"] == pytest.approx(second["AUROC"], abs=0.01)


def test_benchmark_of_pytorch_ood_scores_inputs_by_all_layers(model: Classifier, fitted: PNML) -> None:
    synthetic = SyntheticBenchmark()
    for detector, encoder in [
        (fitted, None),
        (PNML(model.features, model.fc, layers="last").fit(DataLoader(TRAIN, batch_size=64)), model.features),
        (PNML(model.features, model.fc).fit_features(train_features(model), TRAIN.tensors[1]), model.features),
    ]:
        assert detector.encoder == encoder
        for cache in (False, True):
            found = synthetic.evaluate(detector, loader_kwargs={"batch_size": 30}, cache=cache)
            for result, test in zip(found, synthetic.test_sets(), strict=True):
                x, y = next(iter(DataLoader(test, batch_size=100)))
                assert result["AUROC"] == pytest.approx(roc_auc_score(y < 0, detector(x).numpy()), abs=1e-6)
    assert not torch.allclose(fitted(x), fitted.predict_features(model.layers(x)[0]))


def ill_conditioned(n: int, seed: int, small: float) -> Tensor:
    """Return float32 features with half of the directions scaled by ``small``, after a random rotation."""
    rng = np.random.default_rng(seed)
    spread = np.where(np.arange(FEATURES) < FEATURES // 2, 1.0, small)
    rotation, _ = np.linalg.qr(np.random.default_rng(99).normal(size=(FEATURES, FEATURES)))
    return torch.from_numpy((rng.normal(size=(n, FEATURES)) * spread) @ rotation).float()


def test_small_directions_are_used_unlike_in_a_float32_inverse(model: Classifier) -> None:
    train, labels = ill_conditioned(2000, seed=0, small=1e-4), torch.zeros(2000)
    ind, ood = ill_conditioned(200, seed=1, small=1e-4), ill_conditioned(200, seed=2, small=1e-2)
    rows, is_ood = torch.cat([ind, ood]), [0] * 200 + [1] * 200
    original = pytorch_ood.detector.PNML(None, model.fc).fit_features(train, labels)
    adapter = PNML(None, model.fc, embedding_scale="paper").fit_features(train, labels)
    assert adapter.detector is not None
    exact = by_pseudo_inverse(*model.get_fc(), train.double().numpy(), rows.double().numpy(), "paper")["regret"]
    assert roc_auc_score(is_ood, exact) > 0.99
    assert roc_auc_score(is_ood, original.predict_features(rows).numpy()) < 0.6
    assert roc_auc_score(is_ood, adapter.predict_features(rows).numpy()) > 0.99
    np.testing.assert_allclose(adapter.predict_features(rows).numpy(), exact, rtol=LARGEST_ERROR)
    assert np.median(original.predict_features(ood).numpy() * np.log(CLASSES) / exact[200:]) < 0.1


def test_invalid_head_or_missing_encoder_raises(model: Classifier) -> None:
    with pytest.raises(TypeError, match=r"head is a Sequential: expected the last nn.Linear"):
        PNML(encoder=None, head=nn.Sequential(model.fc))  # type: ignore[arg-type]
    with pytest.raises(pytorch_ood.api.ModelNotSetException):
        PNML(encoder=None, head=model.fc).fit(DataLoader(TRAIN, batch_size=50))


def test_fit_leaves_out_zero_features_with_a_warning(model: Classifier, fitted: PNML) -> None:
    rows = torch.cat([torch.zeros(3, FEATURES), train_features(model)])
    with pytest.warns(ZeroEmbeddingWarning, match="3 of [0-9]+ training rows have norm 0"):
        other = PNML(None, model.fc).fit_features(rows, torch.zeros(len(rows)))
    x = train_features(model)[:10]
    torch.testing.assert_close(other.predict_features(x), fitted.predict_features(x), rtol=2 * LARGEST_ERROR, atol=0)
