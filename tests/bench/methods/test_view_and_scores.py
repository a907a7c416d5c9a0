from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax

from pnml_bench.methods import Baseline, Energy, GramMethod, View
from pnml_bench.methods.gram import validation_splits
from pnml_bench.zoo.densenet import DenseNet

from .synthetic import CLASSES, blobs, image_set, noise

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from pnml import Detector
    from pnml_bench.zoo import Network


@pytest.fixture
def view(network: Network) -> View:
    return View(network, image_set(np.concatenate([blobs(10, seed=8)[0], noise(10, seed=8)])), batch_size=6)


def naive_regret(embeddings: np.ndarray, train: np.ndarray, network: Network, scale: np.ndarray) -> np.ndarray:
    """Compute the regret row by row, from unit-norm embeddings whose leverage is multiplied by ``scale``."""
    weight, bias = (tensor.detach().double().numpy() for tensor in (network.head.weight, network.head.bias))
    unit_train = train / np.linalg.norm(train, axis=1, keepdims=True)
    inverse = np.linalg.inv(unit_train.T @ unit_train)
    regrets = []
    for x, s in zip(embeddings, scale, strict=True):
        unit = x / np.linalg.norm(x)
        p = softmax(weight @ unit + bias)
        h = s * unit @ inverse @ unit
        genies = p / (p + p ** (h / (1 + h)) * (1 - p))
        regrets.append(np.log(genies.sum()))
    return np.asarray(regrets)


def test_view_outputs_are_those_of_the_network(network: Network, view: View) -> None:
    pixels = torch.from_numpy(np.asarray(view.images.images)).permute(0, 3, 1, 2)
    with torch.no_grad():
        x = (pixels / 255 - network.normalise.mean) / network.normalise.std
        expected = network(x)
    torch.testing.assert_close(view.logits, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(network.head(view.embeddings), view.logits)


@pytest.mark.parametrize("first", ["features", "outputs"])
def test_features_are_computed_with_the_embeddings_if_asked_for_first(network: Network, first: str) -> None:
    passes = []

    def track(batches: Iterable[Tensor], what: str, count: int) -> Iterable[Tensor]:
        passes.append((what, count))
        return batches

    view = View(network, image_set(noise(7)), batch_size=3, track=track)
    if first == "outputs":
        _ = view.outputs
    kept = view.__dict__.get("outputs")
    for _ in range(2):
        assert all(len(features) == 7 for features in view.features(view.layers))
        assert len(view.embeddings) == len(view.logits) == 7
    assert kept is None or view.outputs is kept
    assert len(passes) == (1 if first == "features" else 2)


def test_view_of_network_in_training_mode_raises() -> None:
    with pytest.raises(ValueError, match=r"network\.eval\(\)"):
        View(DenseNet(CLASSES, depth=1), image_set(noise(2)))


def test_baseline_and_energy_scores_match_their_formulas(
    network: Network, train: View, detector: Detector, view: View
) -> None:
    logits = view.logits.double().numpy()
    baseline, energy = Baseline().fit(train).combine(detector), Energy().fit(train).combine(detector)
    np.testing.assert_allclose(baseline.score(view).numpy(), 1 - softmax(logits, axis=1).max(axis=1), atol=1e-12)
    np.testing.assert_allclose(energy.score(view).numpy(), -logsumexp(logits, axis=1), rtol=1e-12)
    expected = naive_regret(view.embeddings.numpy(), train.embeddings.numpy(), network, np.ones(len(view)))
    for method in (baseline, energy):
        np.testing.assert_allclose(method.score_with_pnml(view).numpy(), expected, rtol=1e-3)


def test_gram_method_normalises_by_the_held_out_tenth(
    network: Network, train: View, detector: Detector, view: View
) -> None:
    method = GramMethod().fit(train).combine(detector)
    with pytest.raises(ValueError, match="trials"):
        method.score(view)
    ind = View(network, image_set(blobs(30, seed=9)[0]))
    deviations = [method.gram.deviations(network, one.inputs("test")).double().numpy() for one in (ind, view)]
    trials = 0
    for rows, (held_out, rest) in zip(method.trials(ind, view), validation_splits(30), strict=True):
        trials += 1
        np.testing.assert_array_equal(rows, rest)
        validation = deviations[0][held_out]
        scores = (deviations[1] / (validation.sum(axis=0) + 1e-7)).mean(axis=1)
        np.testing.assert_allclose(method.score(view).numpy(), scores, rtol=1e-4)
        scale = (deviations[1] / np.maximum(validation.std(axis=0), 1e-7)).mean(axis=1)
        expected = naive_regret(view.embeddings.numpy(), train.embeddings.numpy(), network, scale)
        np.testing.assert_allclose(method.score_with_pnml(view).numpy(), expected, rtol=1e-3)
    assert trials == 10
