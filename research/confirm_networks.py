"""Train the networks that confirm the default, and write their embeddings as ``embeddings.py`` does.

``python research/confirm_networks.py --out embeddings``

confirm.md has the plan. They are trained once, after the default is settled, and were scored by nobody before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import confirm_sets  # noqa: F401  # adds the halves of CIFAR-10 to the sets
from confirm_bodies import BODIES
from other_bodies import Other
from other_networks import Plan, main

from pnml.bench.zoo.resnet_cifar import ResNetCifar
from pnml.bench.zoo.wide_resnet import WideResNet

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.bench.zoo import Network

NETWORKS = {
    "wrn16-cutmix_cifar100": Plan(40, 0.3, cutmix=1.0),
    "resnet18-smooth5_cifar10": Plan(35, 0.4, smoothing=0.05),
    "plain_cifar10": Plan(60, 1e-3, weight_decay=0.05, adam=True),
    "mixer_cifar100": Plan(40, 1e-3, weight_decay=0.05, adam=True, cutout=8),
    "convnext_cifar10": Plan(35, 1e-3, weight_decay=0.05, adam=True),
    "vit-class_cifar100": Plan(40, 1e-3, weight_decay=0.05, adam=True, cutout=8),
    "seresnet-focal_svhn": Plan(80, 0.2, focal=2.0),
    "regnet_cifar100": Plan(35, 0.2),
    "resnet14-bare_cifar100": Plan(40, 0.2, still=True),
    "resnet9_cifar10-even": Plan(70, 0.2),
}
ZOO: dict[str, Callable[[int], Network]] = {
    "wrn16-cutmix": lambda classes: WideResNet(classes, depth=2, widen=4, dropout=0.0),
    "resnet18-smooth5": lambda classes: ResNetCifar(classes, blocks=(2, 2, 2, 2)),
    "resnet14-bare": lambda classes: ResNetCifar(classes, blocks=(2, 2, 2)),
}


def create(model: str, num_classes: int) -> Network:
    if model in ZOO:
        return ZOO[model](num_classes)
    body, width = BODIES[model]
    return Other(body(), width, num_classes)


if __name__ == "__main__":
    main(__doc__ or "", NETWORKS, create)
