"""Compare the peers of pytorch-ood and the regret of the paper with explicit computations of their scores."""

from __future__ import annotations

from copy import copy, deepcopy
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.metrics import roc_auc_score

from oracles import by_pseudo_inverse
from pnml_bench.data import ImageSet
from pnml_bench.methods import (
    ALL_METHODS,
    GROUPS,
    LAYER_PEERS,
    METHODS,
    PEERS,
    REGRETS,
    Method,
    MethodFailedError,
    Outputs,
    View,
)
from pnml_bench.zoo import create
from pnml_bench.zoo.densenet import DenseNet

from .synthetic import CLASSES, blobs, image_set, noise

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml_bench.zoo import Network

Array = np.ndarray
TRAIN, LABELS = blobs(180, seed=0)


@pytest.fixture(scope="session")
def network(network: Network) -> Network:
    """Return the network in float32, in which the peers compute."""
    return deepcopy(network).float()


@pytest.fixture(scope="module")
def labelled(network: Network) -> View:
    return View(network, ImageSet("synthetic", TRAIN, LABELS.astype(np.int64), "train", ""), batch_size=32)


@pytest.fixture(scope="module", params=[*PEERS, *REGRETS, *LAYER_PEERS])
def method(request: pytest.FixtureRequest, labelled: View) -> Method:
    return ALL_METHODS[request.param]().fit(labelled)


@pytest.fixture
def images() -> Array:
    return np.concatenate([blobs(9, seed=2)[0], noise(9, seed=2)])


def arrays(view: View) -> tuple[Array, Array]:
    return view.embeddings.double().numpy(), view.logits.double().numpy()


def unit_rows(x: Array) -> Array:
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


EXPLICIT = (
    *("mahalanobis", "mahalanobis-plus", "vim", "knn", "react", "she", "gmm", "nnguide"),
    *("pnml-paper", "pytorch-ood-pnml"),
)


class Oracle:
    """Scores computed from the formulas in their papers, in float64, where more is given to a peer than its samples."""

    def __init__(self, train: View) -> None:
        self.z, self.logits = arrays(train)
        self.y = np.asarray(train.images.labels)
        self.weight, self.bias = (t.detach().double().numpy() for t in train.network.head.parameters())
        self.means = np.stack([self.z[self.y == k].mean(axis=0) for k in range(CLASSES)])

    def energy(self, z: Array) -> Array:
        return np.asarray(-logsumexp(z @ self.weight.T + self.bias, axis=1))

    def distances(self, z: Array) -> Array:
        centred = self.z - self.means[self.y]
        inverse = np.linalg.inv(centred.T @ centred + 1e-6 * np.eye(z.shape[1]))
        return np.stack([np.einsum("ij,jk,ik->i", z - mean, inverse, z - mean) for mean in self.means], axis=1)

    def mahalanobis(self, z: Array, _: Array) -> Array:
        return np.asarray(self.distances(z).min(axis=1) / 2)

    def vim(self, z: Array, _: Array) -> Array:
        origin = -np.linalg.pinv(self.weight) @ self.bias
        _, _, directions = np.linalg.svd(self.z - origin)
        outside = directions[z.shape[1] // 2 :].T
        train = np.linalg.norm((self.z - origin) @ outside, axis=1).mean()
        alpha = self.logits.max(axis=1).mean() / train
        return np.asarray(alpha * np.linalg.norm((z - origin) @ outside, axis=1) + self.energy(z))

    def knn(self, z: Array, _: Array) -> Array:
        return np.asarray(np.sort(cdist(unit_rows(z), unit_rows(self.z)), axis=1)[:, 49])

    def react(self, z: Array, _: Array) -> Array:
        return self.energy(np.minimum(z, np.percentile(self.z, 90)))

    def she(self, z: Array, logits: Array) -> Array:
        right = self.logits.argmax(axis=1) == self.y
        patterns = np.stack([self.z[right & (self.y == k)].mean(axis=0) for k in range(CLASSES)])
        return np.asarray(-(z * patterns[logits.argmax(axis=1)]).sum(axis=1))

    def unit(self) -> Oracle:
        """Return the same for embeddings at norm 1."""
        other = copy(self)
        other.z = unit_rows(self.z)
        other.means = np.stack([other.z[self.y == k].mean(axis=0) for k in range(CLASSES)])
        return other

    def mahalanobis_plus(self, z: Array, logits: Array) -> Array:
        return self.unit().mahalanobis(unit_rows(z), logits)

    def gmm(self, z: Array, _: Array) -> Array:
        classes = [self.z[self.y == k] for k in range(CLASSES)]
        ridge = 1e-6 * np.eye(z.shape[1])
        likelihoods = [
            np.log(len(one) / len(self.z))
            + multivariate_normal(one.mean(axis=0), np.cov(one.T, bias=True) + ridge).logpdf(z)
            for one in classes
        ]
        return np.asarray(-logsumexp(likelihoods, axis=0))

    def nnguide(self, z: Array, _: Array) -> Array:
        bank = unit_rows(self.z) * -self.energy(self.z)[:, None]
        guidance = np.sort(unit_rows(z) @ bank.T, axis=1)[:, -10:].mean(axis=1)
        return np.asarray(guidance * self.energy(z))

    def pnml_paper(self, z: Array, _: Array) -> Array:
        return by_pseudo_inverse(self.weight, self.bias, self.z, z, "paper")["regret"]

    def pytorch_ood_pnml(self, z: Array, logits: Array) -> Array:
        return np.asarray(self.pnml_paper(z, logits) / np.log(CLASSES))


@pytest.fixture(scope="module")
def conditioned() -> tuple[View, View]:
    """Return a training and a test view of embeddings that are well conditioned in float32; see :func:`rounding`."""
    rng = np.random.default_rng(0)
    network = DenseNet(CLASSES, depth=1, growth=8).eval()
    width = network.head.in_features
    labels = np.arange(300) % CLASSES
    with torch.no_grad():
        network.head.weight.copy_(torch.from_numpy(rng.normal(size=(CLASSES, width)) / width + np.eye(CLASSES, width)))
        network.head.bias.copy_(torch.from_numpy(rng.normal(size=CLASSES)))
    deviation = np.where(np.arange(width) < width // 2, 3.0, 1.0)  # ViM cuts its subspace where this steps

    def rows(y: Array) -> Array:
        return np.asarray(np.abs(rng.normal(size=(len(y), width)) * deviation + 6 * np.eye(CLASSES, width)[y]))

    return view_of(rows(labels), labels, network), view_of(rows(labels[:18]), None, network)


def rounding(train: View) -> float:
    """Return M κ ε: how far float32 sums over M features are off after solving with the training correlation."""
    z, _ = arrays(train)
    return float(z.shape[1] * np.linalg.cond(z.T @ z) * np.finfo(np.float32).eps)


@pytest.mark.parametrize("name", EXPLICIT)
def test_scores_equal_those_of_an_explicit_computation(name: str, conditioned: tuple[View, View]) -> None:
    train, view = conditioned
    method = ALL_METHODS[name]().fit(train)
    formula: Callable[[Array, Array], Array] = getattr(Oracle(train), name.replace("-", "_"))
    expected = formula(*arrays(view))
    atol = rounding(train) * np.abs(expected).max()
    np.testing.assert_allclose(method.score(view).numpy(), expected, rtol=0, atol=atol)
    order = np.random.default_rng(0).permutation(len(expected))
    shuffled = view_of(view.embeddings.numpy()[order], None, view.network)
    np.testing.assert_allclose(method.score(shuffled).numpy(), expected[order], rtol=0, atol=atol)


@pytest.mark.parametrize("rows", [1, 7])
def test_scores_do_not_depend_on_how_many_rows_are_scored_at_once(
    method: Method, network: Network, images: Array, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = method.score(View(network, image_set(images)))
    head = network.head
    monkeypatch.setattr("pnml_bench.methods.peers._AT_ONCE", rows * head.in_features * head.out_features)
    parts = method.score(View(network, image_set(images), batch_size=rows))
    assert parts.shape == (len(images),)
    torch.testing.assert_close(parts, whole, rtol=1e-3, atol=1e-4)


def test_fit_and_score_do_not_change_the_network(method: Method, labelled: View, images: Array) -> None:
    network = labelled.network
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    type(method)().fit(labelled).score(View(network, image_set(images)))
    assert not any(module.training for module in network.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in network.parameters())
    assert torch.is_grad_enabled()


def test_scores_are_larger_for_noise_than_for_in_distribution_images(method: Method, network: Network) -> None:
    if method.name == "dice":
        pytest.skip("a tenth of 54 weights is too few; the next test has more")
    ind, ood = (method.score(View(network, image_set(one))) for one in (blobs(30, seed=3)[0], noise(30, seed=3)))
    assert roc_auc_score([0] * 30 + [1] * 30, torch.cat([ind, ood]).numpy()) > 0.9


def test_score_with_pnml_raises_for_peers(method: Method, labelled: View) -> None:
    with pytest.raises(ValueError, match=f"{method.name} has no combination with pNML"):
        method.score_with_pnml(labelled)


def view_of(embeddings: Array, labels: Array | None, network: Network) -> View:
    """Return a view with the given embeddings."""
    images = ImageSet("synthetic", np.zeros((len(embeddings), 4, 4, 3), np.uint8), labels, "train", "")
    view = View(network, images)
    rows = torch.from_numpy(embeddings).float()
    with torch.no_grad():
        view.outputs = Outputs(rows, network.head(rows))
    return view


@pytest.mark.parametrize(
    ("name", "n", "labels", "reason"),
    [
        ("knn", 30, None, "knn needs labels, but ImageSet"),
        ("knn", 30, np.arange(30) % 10, "knn failed when fitting on 30 samples of 10 of 10 classes: ValueError: k=50"),
        ("mahalanobis", 30, 2 * (np.arange(30) % 5), "on 30 samples of 5 of 10 classes: AssertionError$"),
        ("she", 60, np.arange(60) % 9, "of 9 of 10 classes: it needs samples of every class"),
    ],
)
def test_fit_raises_with_the_reason_when_a_peer_cannot_be_fitted(
    name: str, n: int, labels: Array | None, reason: str
) -> None:
    network = create("resnet-20", 10).eval()
    train = view_of(np.random.default_rng(0).random((n, 64)), labels, network)
    with pytest.raises(MethodFailedError, match=reason):
        PEERS[name]().fit(train)


def test_score_raises_when_a_peer_returns_nan() -> None:
    network = create("resnet-20", 10).eval()
    with torch.no_grad():
        network.head.bias.zero_()
    view = view_of(np.zeros((60, 64)), np.arange(60) % 10, network)
    vim = PEERS["vim"]().fit(view)
    with pytest.raises(MethodFailedError, match="vim returned NaN for 60 of 60 scores"):
        vim.score(view)


def test_groups_contain_the_methods_of_the_paper_and_the_leaderboard() -> None:
    assert GROUPS["all"] == tuple(METHODS)
    assert set(GROUPS["peers"]) == {"baseline", "energy", *PEERS, *REGRETS} - {"pnml-published"}
    assert set(GROUPS["layers"]) == {"pnml", "pnml-last", "knn-layers", "mahalanobis-layers"}
    assert len(PEERS) == 21
    assert set(ALL_METHODS) == {*METHODS, *PEERS, *REGRETS, *LAYER_PEERS}
    assert not any(ALL_METHODS[name].composes for name in (*PEERS, *REGRETS, *LAYER_PEERS))
