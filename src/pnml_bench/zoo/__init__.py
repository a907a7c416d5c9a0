"""Image classifiers and their trained weights.

>>> from pnml_bench import zoo
>>> network = zoo.create("resnet-20", num_classes=10)
>>> network.head
Linear(in_features=64, out_features=10, bias=True)

``zoo.load("densenet-bc-100_cifar10")`` returns a trained network; ``zoo.CHECKPOINTS`` lists the known ones.
"""

from __future__ import annotations

from pnml_bench.zoo.architectures import ARCHITECTURES, create
from pnml_bench.zoo.checkpoints import CHECKPOINTS, Checkpoint
from pnml_bench.zoo.network import Network, Normalise
from pnml_bench.zoo.weights import load, round_to_float16, save

__all__ = [
    "ARCHITECTURES",
    "CHECKPOINTS",
    "Checkpoint",
    "Network",
    "Normalise",
    "create",
    "load",
    "round_to_float16",
    "save",
]
