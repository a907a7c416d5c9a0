from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from pnml_bench.methods import Odin, View
from pnml_bench.methods.odin import direction

from .synthetic import blobs, image_set, noise

if TYPE_CHECKING:
    from torch import Tensor

    from pnml import Detector
    from pnml_bench.zoo import Network

GRID = (0.0, 0.0005, 0.001, 0.0014, 0.002, 0.0024, 0.005, 0.01, 0.05, 0.1)


def naive(network: Network, images: np.ndarray, epsilons: tuple[float, ...]) -> list[tuple[np.ndarray, Tensor]]:
    """Perturb one image at a time in [0, 1] space; return the scores and the embeddings for each ε."""
    mean, std = network.normalise.mean, network.normalise.std
    found = []
    for image in images:
        pixels = (torch.from_numpy(image).permute(2, 0, 1).float() / 255).requires_grad_()
        logits = network(((pixels - mean) / std)[None])[0] / 1000
        (gradient,) = torch.autograd.grad(torch.logsumexp(logits, dim=0) - logits.max(), pixels)
        with torch.no_grad():
            moved = torch.stack([(pixels - epsilon * gradient.sign() - mean) / std for epsilon in epsilons])
            embeddings = network.features(moved)
            largest = (network.head(embeddings).double() / 1000).softmax(dim=1).amax(dim=1)
        found.append((1 - largest, embeddings))
    scores, rows = (torch.stack(part, dim=1) for part in zip(*found, strict=True))
    return [(scores[i].numpy(), rows[i]) for i in range(len(epsilons))]


@pytest.fixture
def images() -> np.ndarray:
    return np.concatenate([blobs(6, seed=5)[0], noise(6, seed=5)])


def test_scores_are_those_of_images_perturbed_by_epsilon(
    network: Network, train: View, detector: Detector, images: np.ndarray
) -> None:
    method = Odin().fit(train).combine(detector)
    ((expected, embeddings),) = naive(network, images, (method.epsilon,))
    view = View(network, image_set(images), batch_size=5)
    np.testing.assert_allclose(method.score(view).numpy(), expected, rtol=1e-5)
    regret = detector.score(embeddings.double())
    torch.testing.assert_close(method.score_with_pnml(view).double(), regret, rtol=1e-3, atol=1e-6)


def test_epsilon_minimises_the_mean_score_of_training_images(network: Network, train: View, detector: Detector) -> None:
    some = View(network, image_set(np.asarray(train.images.images)[:24]))
    method = Odin().fit(some).combine(detector)
    means = [scores.mean() for scores, _ in naive(network, np.asarray(some.images.images), GRID)]
    assert method.epsilon == GRID[int(np.argmin(means))] == method.epsilon_with_pnml
    assert method.settings == {"epsilon": method.epsilon, "epsilon_with_pnml": method.epsilon, "oracle": False}


def test_oracle_selects_epsilon_by_auroc_on_the_ood_set(network: Network, train: View, detector: Detector) -> None:
    ind, ood = blobs(20, seed=6)[0], blobs(20, seed=7)[0] // 2
    method = Odin(oracle=True).fit(train).combine(detector)
    rows = list(method.trials(View(network, image_set(ind)), View(network, image_set(ood))))
    assert rows == [slice(None)]
    labels = [0] * 20 + [1] * 20
    found = list(zip(*(naive(network, one, GRID) for one in (ind, ood)), strict=True))
    alone = [roc_auc_score(labels, np.concatenate([scores for scores, _ in pair])) for pair in found]
    regret = [
        roc_auc_score(labels, torch.cat([detector.score(embeddings) for _, embeddings in pair]).numpy())
        for pair in found
    ]
    assert alone[GRID.index(method.epsilon)] == pytest.approx(max(alone), abs=0.01)
    assert regret[GRID.index(method.epsilon_with_pnml)] == pytest.approx(max(regret), abs=0.01)


def test_direction_is_the_sign_divided_by_the_std_of_each_channel(network: Network, train: View) -> None:
    x = next(iter(train.inputs("test")))
    with torch.inference_mode():
        steps = direction(network, x)
    std = network.normalise.std.flatten()
    for channel in range(3):
        size = steps[:, channel].abs()
        assert float((size > 0).float().mean()) > 0.9
        torch.testing.assert_close(size[size > 0], torch.full_like(size[size > 0], float(1 / std[channel])))
