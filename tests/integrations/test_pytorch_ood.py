"""The adapter against the real pytorch-ood package."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from pnml.integrations._import import import_pytorch_ood
from pnml.integrations.pytorch_ood import PNML
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

from pnml import Detector
from pnml.core.detector import ZeroEmbeddingWarning

from .made import CLASSES, FEATURES, Classifier, classifier, inputs, naive_regret

theirs = import_pytorch_ood("these tests")
benchmark = import_module("pytorch_ood.benchmark")
TRAIN = TensorDataset(inputs(500, seed=0), torch.arange(500) % CLASSES)


@pytest.fixture
def model() -> Classifier:
    return classifier()


@pytest.fixture
def fitted(model: Classifier) -> PNML:
    return PNML(encoder=model.features, head=model.fc).fit(DataLoader(TRAIN, batch_size=64))


def reference(model: Classifier) -> Detector:
    with torch.no_grad():
        return Detector(model.fc.weight, model.fc.bias).fit(model.features(TRAIN.tensors[0]))


def test_it_is_a_detector_of_theirs_that_needs_fitting(model: Classifier) -> None:
    detector = PNML(encoder=model.features, head=model.fc)
    assert isinstance(detector, theirs.api.FeaturesDetector)
    assert detector.requires_fit
    assert theirs.api.Task.CLASSIFICATION in PNML.info.tasks
    with pytest.raises(theirs.api.RequiresFittingException):
        detector.predict(inputs(2, seed=1))


def test_scores_are_those_of_our_detector(model: Classifier, fitted: PNML) -> None:
    x = inputs(30, seed=1)
    with torch.no_grad():
        features = model.features(x)
    expected = reference(model).score(features)
    torch.testing.assert_close(fitted(x), expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(fitted.predict_features(features), expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(fitted(x).numpy(), naive_regret(features, train_features(model), model.fc), rtol=1e-4)


def train_features(model: Classifier) -> Tensor:
    with torch.no_grad():
        return model.features(TRAIN.tensors[0])


@pytest.mark.parametrize("scale", ["auto", "paper", "natural"])
def test_the_scale_is_passed_on(scale: Any, model: Classifier) -> None:
    scaled = PNML(None, model.fc, embedding_scale=scale).fit_features(train_features(model), TRAIN.tensors[1])
    expected = Detector(model.fc.weight, model.fc.bias, embedding_scale=scale).fit(train_features(model))
    rows = train_features(model)[:20]
    torch.testing.assert_close(scaled.predict_features(rows), expected.score(rows), rtol=1e-6, atol=1e-7)


def test_out_of_distribution_labels_are_left_out_of_the_fit(model: Classifier, fitted: PNML) -> None:
    strange = TensorDataset(inputs(40, seed=3, scale=9), torch.full((40,), -1))
    both = PNML(encoder=model.features, head=model.fc).fit(DataLoader(ConcatDataset([TRAIN, strange]), batch_size=20))
    x = inputs(10, seed=1)
    torch.testing.assert_close(both(x), fitted(x), rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match="no in-distribution sample"):
        PNML(encoder=model.features, head=model.fc).fit(DataLoader(strange, batch_size=20))


def test_their_metrics_take_its_scores(fitted: PNML) -> None:
    x, y = torch.cat([inputs(60, seed=1), inputs(40, seed=2, scale=4)]), torch.tensor([0] * 60 + [-1] * 40)
    metrics = theirs.metrics.OODMetrics()
    for start in range(0, 100, 25):
        metrics.update(fitted(x[start : start + 25]), y[start : start + 25])
    assert metrics.compute()["AUROC"] == pytest.approx(roc_auc_score(y < 0, fitted(x).numpy()), abs=1e-6)


class Made(benchmark.Benchmark):  # type: ignore[misc, name-defined]  # the package has no types
    """A benchmark of theirs on made inputs."""

    ood_names = ("wide", "narrow")

    def train_set(self) -> TensorDataset:
        return TRAIN

    def test_sets(self, known: bool = True, unknown: bool = True) -> list[Any]:  # noqa: FBT001, FBT002 - theirs
        ind = TensorDataset(inputs(60, seed=1), torch.zeros(60, dtype=torch.long))
        oods = [TensorDataset(inputs(40, seed=2, scale=s), torch.full((40,), -1)) for s in (4.0, 0.1)]
        return [ConcatDataset([ind, ood]) for ood in oods]


def test_their_benchmark_runs_it_in_place_of_their_own(model: Classifier) -> None:
    made = Made()
    loader = DataLoader(made.train_set(), batch_size=50)
    own = theirs.detector.PNML(encoder=model.features, head=model.fc).fit(loader)
    ours = PNML(encoder=model.features, head=model.fc, embedding_scale="paper").fit(loader)  # theirs knows no other
    found = made.evaluate([own, ours], loader_kwargs={"batch_size": 30}, cache=True)
    assert [result["Dataset"] for result in found] == ["wide", "wide", "narrow", "narrow"]
    for first, second in zip(found[::2], found[1::2], strict=True):  # well-conditioned features: they agree
        assert first["AUROC"] == pytest.approx(second["AUROC"], abs=0.01)


def ill_conditioned(n: int, seed: int, small: float) -> Tensor:
    """Give float32 features of which half the directions are ``small``, turned so that no column is."""
    rng = np.random.default_rng(seed)
    spread = np.where(np.arange(FEATURES) < FEATURES // 2, 1.0, small)
    turned, _ = np.linalg.qr(np.random.default_rng(99).normal(size=(FEATURES, FEATURES)))
    return torch.from_numpy((rng.normal(size=(n, FEATURES)) * spread) @ turned).float()


def test_small_directions_are_kept_where_a_float32_inverse_cuts_them_off(model: Classifier) -> None:
    train, labels = ill_conditioned(2000, seed=0, small=1e-4), torch.zeros(2000)
    ind, ood = ill_conditioned(200, seed=1, small=1e-4), ill_conditioned(200, seed=2, small=1e-2)
    rows, is_ood = torch.cat([ind, ood]), [0] * 200 + [1] * 200
    own = theirs.detector.PNML(None, model.fc).fit_features(train, labels)
    ours = PNML(None, model.fc, embedding_scale="paper").fit_features(train, labels)
    exact = naive_regret(rows, train, model.fc, "paper")
    assert roc_auc_score(is_ood, exact) > 0.99
    assert roc_auc_score(is_ood, own.predict_features(rows).numpy()) < 0.6
    assert roc_auc_score(is_ood, ours.predict_features(rows).numpy()) > 0.99
    np.testing.assert_allclose(ours.predict_features(rows).numpy(), exact, rtol=0.01)
    assert np.median(own.predict_features(ood).numpy() * np.log(CLASSES) / exact[200:]) < 0.1


def test_what_cannot_be_used_is_refused(model: Classifier) -> None:
    with pytest.raises(TypeError, match="head is a Sequential: give the model's last"):
        PNML(encoder=None, head=nn.Sequential(model.fc))  # type: ignore[arg-type]
    with pytest.raises(theirs.api.ModelNotSetException):
        PNML(encoder=None, head=model.fc).fit(DataLoader(TRAIN, batch_size=50))


def test_features_of_zeros_are_left_out(model: Classifier, fitted: PNML) -> None:
    rows = torch.cat([torch.zeros(3, FEATURES), train_features(model)])
    with pytest.warns(ZeroEmbeddingWarning, match="3 of [0-9]+ training rows have norm 0"):
        other = PNML(None, model.fc).fit_features(rows, torch.zeros(len(rows)))
    x = train_features(model)[:10]
    torch.testing.assert_close(other.predict_features(x), fitted.predict_features(x), rtol=1e-5, atol=1e-7)
