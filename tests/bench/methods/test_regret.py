"""The regrets of the benchmark are those of a detector that is given the outputs of the same layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import pnml
from oracles import NOISE, balanced_head
from pnml.core.profile import LEVEL, SLOPE
from pnml_bench.methods import REGRETS, View

from .synthetic import blobs, image_set, noise

if TYPE_CHECKING:
    from pnml_bench.zoo import Network


@pytest.fixture
def view(network: Network) -> View:
    return View(network, image_set(np.concatenate([blobs(9, seed=2)[0], noise(9, seed=2)])), batch_size=5)


@pytest.mark.parametrize(("name", "layers"), [("pnml", "auto"), ("pnml-last", "last")])
def test_regrets_are_those_of_a_guard(train: View, view: View, name: str, layers: str) -> None:
    guard = pnml.guard(train.network, layers=layers).fit(train.inputs("guard"), progress=False)
    expected = torch.cat([guard(x).regret for x in view.inputs("guard")])
    method = REGRETS[name]().fit(train)
    assert tuple(method.settings.get("layers", ())) == guard.layers
    torch.testing.assert_close(method.score(view), expected, rtol=1e-2, atol=1e-7, check_dtype=False)


def test_settings_record_layers_level_length_and_label_noise(train: View) -> None:
    stated = {name: regret().fit(train).settings for name, regret in REGRETS.items()}
    weight, bias = (tensor.detach().numpy() for tensor in train.network.head.parameters())
    length, _ = balanced_head(train.embeddings.numpy(), weight, bias)
    auto = {"embedding_scale": "auto", "embedding_length": pytest.approx(length, rel=1e-5), "label_noise": NOISE}
    layers = [str(layer) for layer in train.layers]
    assert stated == {
        "pnml": {**auto, "layers": layers, "level": LEVEL, "slope": SLOPE},
        "pnml-last": auto,
        "pnml-paper": {"embedding_scale": "paper", "embedding_length": 1.0, "label_noise": 0.0},
        "pnml-published": {"arithmetic": "published", "rcond": 1e-15},
    }
