from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from pnml_bench.methods import METHODS, Method, Odin, View

from .synthetic import blobs, image_set, noise

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from pnml import Detector
    from pnml_bench.zoo import Network

FACTORIES: dict[str, Callable[[], Method]] = {**METHODS, "odin-oracle": partial(Odin, oracle=True)}
N = 40


@pytest.fixture(scope="module", params=FACTORIES)
def method(request: pytest.FixtureRequest, network: Network, train: View, detector: Detector) -> Method:
    """Return every method, fitted and in its first trial."""
    fitted = FACTORIES[request.param]().fit(train).combine(detector)
    ind, ood = View(network, image_set(blobs(N, seed=1)[0])), View(network, image_set(noise(N)))
    rows = next(iter(fitted.trials(ind, ood)))
    assert len(torch.arange(N)[rows]) >= 0.9 * N
    return fitted


@pytest.fixture(params=["score", "score_with_pnml"])
def score(request: pytest.FixtureRequest, method: Method) -> Callable[[View], Tensor]:
    """Return the score alone or combined with pNML."""
    score: Callable[[View], Tensor] = getattr(method, request.param)
    return score


@pytest.fixture
def images() -> np.ndarray:
    """Return in-distribution images followed by noise."""
    return np.concatenate([blobs(9, seed=2)[0], noise(9, seed=2)])


def test_scores_do_not_depend_on_batch_size(
    score: Callable[[View], Tensor], network: Network, images: np.ndarray
) -> None:
    whole, single = (score(View(network, image_set(images), batch_size=size)) for size in (18, 1))
    torch.testing.assert_close(whole, single, rtol=1e-3, atol=1e-5)


def test_scores_follow_the_order_of_images(
    score: Callable[[View], Tensor], network: Network, images: np.ndarray
) -> None:
    order = np.random.default_rng(0).permutation(len(images))
    scores, shuffled = (score(View(network, image_set(one))) for one in (images, images[order]))
    torch.testing.assert_close(scores[order], shuffled, rtol=1e-3, atol=1e-5)


def test_fit_and_score_do_not_change_the_network(
    method: Method, network: Network, train: View, detector: Detector, images: np.ndarray
) -> None:
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    needs_grad = [parameter.requires_grad for parameter in network.parameters()]
    other = type(method)().fit(train).combine(detector)
    view = View(network, image_set(images))
    for _ in other.trials(view, view):
        other.score(view)
        other.score_with_pnml(view)
        break
    assert not any(module.training for module in network.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert [parameter.requires_grad for parameter in network.parameters()] == needs_grad
    assert all(parameter.grad is None for parameter in network.parameters())
    assert torch.is_grad_enabled()


def test_scores_are_larger_for_noise_than_for_in_distribution_images(
    score: Callable[[View], Tensor], network: Network
) -> None:
    ind, ood = (score(View(network, image_set(one))) for one in (blobs(30, seed=3)[0], noise(30, seed=3)))
    labels = [0] * 30 + [1] * 30
    assert roc_auc_score(labels, torch.cat([ind, ood]).numpy()) > 0.9
