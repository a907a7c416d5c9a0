from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn.functional import cross_entropy

from pnml import Detector
from pnml_bench.methods import View
from pnml_bench.zoo.densenet import DenseNet

from .synthetic import CLASSES, blobs, image_set

if TYPE_CHECKING:
    from pnml_bench.zoo import Network


@pytest.fixture(scope="session")
def network() -> Network:
    """Return a small DenseNet trained to classify bright colours, in float64: the same on every processor."""
    images, labels = blobs(120, seed=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        densenet = DenseNet(CLASSES, depth=1, growth=8).double()
        parameters = list(densenet.parameters())
        x, y = densenet.normalise(torch.from_numpy(images).permute(0, 3, 1, 2)), torch.from_numpy(labels)
        for _ in range(6):
            for rows in (slice(start, start + 30) for start in range(0, len(x), 30)):
                gradients = torch.autograd.grad(cross_entropy(densenet(x[rows]), y[rows]), parameters)
                with torch.no_grad():
                    for parameter, gradient in zip(parameters, gradients, strict=True):
                        parameter.sub_(gradient, alpha=0.2)
    return densenet.eval()


@pytest.fixture(scope="session")
def train(network: Network) -> View:
    return View(network, image_set(blobs(120, seed=0)[0], "train"), batch_size=32)


@pytest.fixture(scope="session")
def detector(network: Network, train: View) -> Detector:
    """Return the detector that the benchmark combines methods with: that of the paper."""
    head = network.head
    return Detector(head.weight.detach(), head.bias.detach(), embedding_scale="paper").fit(train.embeddings)
