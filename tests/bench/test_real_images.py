"""A few hundred real images through the paper's own network."""

from __future__ import annotations

import os

import pytest

from pnml import Detector
from pnml.metrics import auroc
from pnml_bench import zoo
from pnml_bench.data import load
from pnml_bench.methods import Baseline, View

pytestmark = pytest.mark.skipif(
    not (os.environ.get("PNML_WEIGHTS") and os.environ.get("PNML_DATA")),
    reason="needs the paper's weights and images: set PNML_WEIGHTS and PNML_DATA",
)


def test_cifar10_against_noise_and_svhn() -> None:
    network = zoo.load("densenet-bc-100_cifar10")
    train = View(network, load("cifar10", split="train", limit=300))
    detector = Detector(network.head.weight.detach(), network.head.bias.detach()).fit(train.embeddings)
    method = Baseline().fit(train).combine(detector)
    ind, uniform, svhn = (View(network, load(name, limit=50)) for name in ("cifar10", "uniform", "svhn"))
    right = ind.logits.argmax(dim=1).numpy() == ind.images.labels
    assert right.mean() > 0.85  # 95.2 % on the whole set
    assert auroc(method.score(ind), method.score(uniform)) == pytest.approx(96.6, abs=5)
    assert auroc(method.score(ind), method.score(svhn)) == pytest.approx(89.9, abs=8)
    assert auroc(method.score_with_pnml(ind), method.score_with_pnml(uniform)) == pytest.approx(100, abs=1)
    assert auroc(method.score_with_pnml(ind), method.score_with_pnml(svhn)) == pytest.approx(98.4, abs=3)
