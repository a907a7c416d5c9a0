"""The regrets of the benchmark are those of a detector that is given the outputs of the same layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import pnml
from oracles import NOISE, balanced_head
from pnml import Detector
from pnml.core.profile import LEVEL, SLOPE
from pnml_bench.methods import REGRETS, View

from .synthetic import blobs, image_set, noise

if TYPE_CHECKING:
    from pnml_bench.zoo import Network

Array = np.ndarray


@pytest.fixture
def view(network: Network) -> View:
    return View(network, image_set(np.concatenate([blobs(9, seed=2)[0], noise(9, seed=2)])), batch_size=5)


def recorded(network: Network, view: View, names: list[str]) -> list[Array]:
    """Return channel means and standard deviations of modules' outputs, all images in one batch, pooled by NumPy."""
    rows: dict[str, Array] = {}

    def hook(name: str) -> torch.utils.hooks.RemovableHandle:
        def pool(_module: object, _args: object, output: torch.Tensor) -> None:
            x = output.numpy()
            rows[name] = np.concatenate([x.mean(axis=(2, 3)), x.std(axis=(2, 3))], axis=1)

        return network.get_submodule(name).register_forward_hook(pool)

    handles = [hook(name) for name in names]
    pixels = torch.from_numpy(np.asarray(view.images.images)).permute(0, 3, 1, 2)
    with torch.no_grad():
        network(network.normalise(pixels))
    for handle in handles:
        handle.remove()
    return [rows[name] for name in names]


def test_view_features_are_channel_means_and_standard_deviations(network: Network, view: View) -> None:
    names = [str(layer) for layer in view.layers]
    assert len(names) >= 4
    for features, expected in zip(view.features(view.layers), recorded(network, view, names), strict=True):
        assert features.dtype == torch.float32
        np.testing.assert_allclose(features.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_pnml_is_the_regret_of_embeddings_and_earlier_layers(network: Network, train: View, view: View) -> None:
    method = REGRETS["pnml"]().fit(train)
    names = method.settings["layers"]
    whole = Detector(network.head.weight.detach(), network.head.bias.detach())
    whole.fit(train.embeddings.numpy(), features=recorded(network, train, names))
    expected = whole.score(view.embeddings.numpy(), features=recorded(network, view, names))
    np.testing.assert_allclose(method.score(view).numpy(), expected, rtol=1e-2)
    assert len(whole.feature_widths) == len(names)


@pytest.mark.parametrize(("name", "layers"), [("pnml", "auto"), ("pnml-last", "last")])
def test_regrets_are_those_of_a_guard(train: View, view: View, name: str, layers: str) -> None:
    guard = pnml.guard(train.network, layers=layers).fit(train.inputs("guard"), progress=False)
    expected = torch.cat([guard(x).regret for x in view.inputs("guard")])
    method = REGRETS[name]().fit(train)
    assert tuple(method.settings.get("layers", ())) == guard.layers
    torch.testing.assert_close(method.score(view), expected, rtol=1e-2, atol=1e-7, check_dtype=False)


def test_settings_record_layers_level_length_label_noise_and_ridges(train: View) -> None:
    stated = {name: regret().fit(train).settings for name, regret in REGRETS.items()}
    weight, bias = (tensor.detach().numpy() for tensor in train.network.head.parameters())
    length, _ = balanced_head(train.embeddings.numpy(), weight, bias)
    auto = {"embedding_scale": "auto", "embedding_length": pytest.approx(length, rel=1e-5), "label_noise": NOISE}
    layers = [str(layer) for layer in train.layers]
    ridges = {name: settings.pop("ridges") for name, settings in stated.items() if "ridges" in settings}
    assert {name: len(found) for name, found in ridges.items()} == {"pnml": 1 + len(layers), "pnml-last": 1}
    assert all(ridge > 0 for found in ridges.values() for ridge in found)
    assert stated == {
        "pnml": {**auto, "layers": layers, "level": LEVEL, "slope": SLOPE},
        "pnml-last": auto,
        "pnml-paper": {"embedding_scale": "paper", "embedding_length": 1.0, "label_noise": 0.0},
        "pnml-published": {"arithmetic": "published", "rcond": 1e-15},
    }
