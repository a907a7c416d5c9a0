"""Compare the peers that are given several layers with explicit computations of their scores."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from pnml_bench.data import ImageSet
from pnml_bench.methods import LAYER_PEERS, MethodFailedError, View

from .synthetic import CLASSES, blobs, image_set, noise

if TYPE_CHECKING:
    from pnml_bench.zoo import Network

Array = np.ndarray
TRAIN, LABELS = blobs(180, seed=0)


@pytest.fixture(scope="module")
def labelled(network: Network) -> View:
    return View(network, ImageSet("synthetic", TRAIN, LABELS.astype(np.int64), "train", ""), batch_size=32)


@pytest.fixture
def view(network: Network) -> View:
    return View(network, image_set(np.concatenate([blobs(9, seed=2)[0], noise(9, seed=2)])))


def unit_layers(view: View, train: View) -> list[Array]:
    layers = [view.embeddings, *view.features(train.layers)]
    rows = [layer.double().numpy() for layer in layers]
    return [x / np.linalg.norm(x, axis=1, keepdims=True) for x in rows]


def test_knn_is_the_distance_to_the_50th_nearest_training_image(labelled: View, view: View) -> None:
    method = LAYER_PEERS["knn-layers"]().fit(labelled)
    distances = cdist(*(np.concatenate(unit_layers(one, labelled), axis=1) for one in (view, labelled)))
    np.testing.assert_allclose(method.score(view).numpy(), np.sort(distances, axis=1)[:, 49], rtol=1e-4)
    assert method.settings == {"k": 50, "layers": [str(layer) for layer in labelled.layers]}


def test_mahalanobis_is_the_sum_over_layers_of_distances_to_the_nearest_class_mean(labelled: View, view: View) -> None:
    method = LAYER_PEERS["mahalanobis-layers"]().fit(labelled)
    expected = np.zeros(len(view))
    for train, rows in zip(unit_layers(labelled, labelled), unit_layers(view, labelled), strict=True):
        means = np.stack([train[label == LABELS].mean(axis=0) for label in range(CLASSES)])
        centred = train - means[LABELS]
        inverse = np.linalg.pinv(centred.T @ centred / len(train), hermitian=True, rcond=1e-12)
        away = rows[:, None] - means
        expected += np.einsum("ncm,mk,nck->nc", away, inverse, away).min(axis=1)
    np.testing.assert_allclose(method.score(view).numpy(), expected, rtol=1e-3)


def test_mahalanobis_leaves_out_directions_in_which_training_images_do_not_vary(network: Network, view: View) -> None:
    silent = deepcopy(network)
    silent.conv1.weight.data[:4] = 0  # type: ignore[union-attr, operator]
    labelled = View(silent, ImageSet("synthetic", TRAIN, LABELS.astype(np.int64), "train", ""))
    scores = LAYER_PEERS["mahalanobis-layers"]().fit(labelled).score(View(silent, view.images))
    assert bool(scores.isfinite().all())
    assert float(scores[9:].min()) > float(scores[:9].max())


def test_fit_raises_with_the_reason(network: Network, labelled: View) -> None:
    unlabelled = View(network, image_set(blobs(60, seed=0)[0], "train"))
    with pytest.raises(MethodFailedError, match="mahalanobis-layers needs labels, but ImageSet"):
        LAYER_PEERS["mahalanobis-layers"]().fit(unlabelled)
    few = View(network, image_set(blobs(49, seed=0)[0], "train"))
    with pytest.raises(MethodFailedError, match="knn-layers needs at least 50 training images, got 49"):
        LAYER_PEERS["knn-layers"]().fit(few)
    with pytest.raises(ValueError, match="knn-layers has no combination with pNML"):
        LAYER_PEERS["knn-layers"]().fit(labelled).score_with_pnml(labelled)
