from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from pnml.bench.methods import METHODS, Method, Odin, View

from .tiny import blobs, image_set, noise

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from pnml import Detector
    from pnml.bench.zoo import Network

MADE: dict[str, Callable[[], Method]] = {**METHODS, "odin-oracle": partial(Odin, oracle=True)}
N = 40


@pytest.fixture(scope="module", params=MADE)
def method(request: pytest.FixtureRequest, network: Network, train: View, detector: Detector) -> Method:
    """Every method, fitted and in its first trial."""
    made = MADE[request.param]().fit(train, detector)
    ind, ood = View(network, image_set(blobs(N, seed=1)[0])), View(network, image_set(noise(N)))
    rows = next(iter(made.trials(ind, ood)))
    assert len(torch.arange(N)[rows]) >= 0.9 * N
    return made


@pytest.fixture(params=["score", "score_with_pnml"])
def score(request: pytest.FixtureRequest, method: Method) -> Callable[[View], Tensor]:
    """Its score, alone and with pNML."""
    found: Callable[[View], Tensor] = getattr(method, request.param)
    return found


@pytest.fixture
def images() -> np.ndarray:
    """In-distribution images and noise, mixed."""
    return np.concatenate([blobs(9, seed=2)[0], noise(9, seed=2)])


def test_one_finite_score_per_sample(score: Callable[[View], Tensor], network: Network, images: np.ndarray) -> None:
    scores = score(View(network, image_set(images)))
    assert scores.shape == (18,)
    assert scores.isfinite().all()


def test_independent_of_batch_size(score: Callable[[View], Tensor], network: Network, images: np.ndarray) -> None:
    whole, single = (score(View(network, image_set(images), batch_size=size)) for size in (18, 1))
    torch.testing.assert_close(whole, single, rtol=1e-3, atol=1e-5)


def test_order_equivariant(score: Callable[[View], Tensor], network: Network, images: np.ndarray) -> None:
    order = np.random.default_rng(0).permutation(len(images))
    scores, shuffled = (score(View(network, image_set(one))) for one in (images, images[order]))
    torch.testing.assert_close(scores[order], shuffled, rtol=1e-3, atol=1e-5)


def test_deterministic(score: Callable[[View], Tensor], network: Network, images: np.ndarray) -> None:
    first, second = (score(View(network, image_set(images))) for _ in range(2))
    assert torch.equal(first, second)


def test_fit_and_score_leave_the_network_alone(
    method: Method, network: Network, train: View, detector: Detector, images: np.ndarray
) -> None:
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    needs_grad = [parameter.requires_grad for parameter in network.parameters()]
    made = type(method)().fit(train, detector)
    view = View(network, image_set(images))
    for _ in made.trials(view, view):
        made.score(view)
        made.score_with_pnml(view)
        break
    assert not any(module.training for module in network.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert [parameter.requires_grad for parameter in network.parameters()] == needs_grad
    assert all(parameter.grad is None for parameter in network.parameters())
    assert torch.is_grad_enabled()


def test_larger_for_noise_than_for_images_like_the_training_set(
    score: Callable[[View], Tensor], network: Network
) -> None:
    ind, ood = (score(View(network, image_set(one))) for one in (blobs(30, seed=3)[0], noise(30, seed=3)))
    labels = [0] * 30 + [1] * 30
    assert roc_auc_score(labels, torch.cat([ind, ood]).numpy()) > 0.9
