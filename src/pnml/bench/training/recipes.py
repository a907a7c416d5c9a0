"""How each network is trained: the numbers, and nothing else."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pnml.bench.training.losses import ConfidenceControl, EnergyMargins

if TYPE_CHECKING:
    from pnml.bench.training.losses import Penalty

DATASETS = {"cifar10": 10, "cifar100": 100, "svhn": 10}  # and their numbers of classes
MODELS = ("densenet-bc-100", "resnet-34", "wideresnet-40-2", "resnet-20")
TUNINGS = (EnergyMargins.name, ConfidenceControl.name)


@dataclass(frozen=True)
class Recipe:
    """SGD with Nesterov momentum, a short linear warm-up, then a cosine down to 0, stepped with every batch.

    Weight decay acts on every parameter, batch norms and biases included. Images are shifted by up to 4 pixels, what
    comes in at the border being reflected, and flipped left to right.

    Attributes:
        model: the network's name in :mod:`pnml.bench.zoo`.
        dataset: the image set's name in :mod:`pnml.bench.data`.
        num_classes: of that set.
        epochs: passes over the training set; images that fill no batch are left out of a pass.
        batch_size: training images in a step.
        lr: the highest learning rate.
        momentum: of Nesterov's kind.
        weight_decay: the L2 penalty.
        warmup: the share of all steps in which the learning rate rises.
        label_smoothing: of the cross entropy.
        flip: whether images are flipped; digits are not.
        penalty: what tuning adds to the cross entropy.
        outliers_per_image: outliers in a step for each training image.

    >>> recipe("resnet-34", "cifar100", tune="oecc").name
    'resnet-34-oecc_cifar100'
    """

    model: str
    dataset: str
    num_classes: int
    epochs: int
    batch_size: int
    lr: float
    momentum: float = 0.9
    weight_decay: float = 5e-4
    warmup: float = 0.05
    label_smoothing: float = 0.0
    flip: bool = True
    penalty: Penalty | None = None
    outliers_per_image: int = 0

    def __post_init__(self) -> None:
        for field, value, least in (("epochs", self.epochs, 1), ("batch_size", self.batch_size, 2)):
            if value < least:
                raise ValueError(f"{field} must be at least {least}, got {value}")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"lr, the learning rate, must be a positive number, got {self.lr}")
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup, a share of all steps, must be at least 0 and below 1, got {self.warmup}")
        if (self.penalty is None) != (self.outliers_per_image == 0):
            raise ValueError(
                f"a penalty needs outliers, and outliers a penalty: got penalty={self.penalty} with "
                f"outliers_per_image={self.outliers_per_image}"
            )

    @property
    def name(self) -> str:
        """What the result is called: model, tuning and set."""
        tuned = "" if self.penalty is None else f"-{self.penalty.name}"
        return f"{self.model}{tuned}_{self.dataset}"

    def to_json(self) -> str:
        """Every number, for the metadata of a checkpoint."""
        return json.dumps(asdict(self), sort_keys=True)

    def lr_at(self, step: int, steps: int) -> float:
        """Give the learning rate of step 0, 1, ... of all ``steps``.

        >>> [round(Recipe("resnet-20", "cifar10", 10, 1, 128, lr=1.0, warmup=0.2).lr_at(i, 10), 2) for i in range(10)]
        [0.33, 0.67, 1.0, 0.96, 0.85, 0.69, 0.5, 0.31, 0.15, 0.04]
        """
        rising = round(self.warmup * steps)
        if step < rising:
            return self.lr * (step + 1) / (rising + 1)
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - rising) / (steps - rising)))


_SMALL_SET = (100, 128, 0.1)  # epochs, batch size, learning rate: small batches, for few images make few steps
_SCHEDULES = {
    ("densenet-bc-100", "cifar10"): (100, 256, 0.2),
    ("densenet-bc-100", "cifar100"): (100, 256, 0.2),
    ("densenet-bc-100", "svhn"): _SMALL_SET,
    ("resnet-34", "cifar10"): (100, 512, 0.4),
    ("resnet-34", "cifar100"): (100, 256, 0.2),
    ("resnet-34", "svhn"): _SMALL_SET,
    ("wideresnet-40-2", "cifar10"): (100, 256, 0.2),
    ("wideresnet-40-2", "cifar100"): (100, 256, 0.2),
    ("wideresnet-40-2", "svhn"): _SMALL_SET,
    ("resnet-20", "cifar10"): (150, 256, 0.2),
    ("resnet-20", "cifar100"): (150, 256, 0.2),
    ("resnet-20", "svhn"): _SMALL_SET,
}
_ENERGY_INSIDE = {"cifar10": -23.0, "cifar100": -27.0, "svhn": -23.0}  # the authors give none for SVHN
_UNIFORMITY = {"cifar10": 0.05, "cifar100": 0.05, "svhn": 0.03}


def recipe(model: str, dataset: str, *, tune: str | None = None) -> Recipe:
    """Give the recipe for a network on a set; ``dataclasses.replace`` changes a number of it.

    Args:
        model: one of ``MODELS``.
        dataset: one of ``DATASETS``.
        tune: "energy" or "oecc", for tuning a trained network against outliers. Both take 128 training images and 256
            outliers in a step and start at a learning rate of 0.001, as their authors did; energy for 10 epochs, OECC
            for 15 (on SVHN too, where the authors took 5 epochs of a set several times as large).

    >>> recipe("resnet-20", "cifar10").epochs
    150
    >>> recipe("wideresnet-40-2", "cifar100", tune="energy").penalty
    EnergyMargins(inside=-27.0, outside=-5.0, weight=0.1)
    """
    for value, known, what in ((model, MODELS, "model"), (dataset, DATASETS, "dataset"), (tune, TUNINGS, "tuning")):
        if value is not None and value not in known:
            raise ValueError(f"there is no recipe for the {what} {value!r}: choose from {', '.join(known)}")
    classes, flip = DATASETS[dataset], dataset != "svhn"
    if tune is None:
        epochs, batch_size, lr = _SCHEDULES[model, dataset]
        return Recipe(model, dataset, classes, epochs, batch_size, lr, flip=flip)
    penalty: Penalty
    if tune == EnergyMargins.name:
        epochs, penalty = 10, EnergyMargins(inside=_ENERGY_INSIDE[dataset])
    else:
        epochs, penalty = 15, ConfidenceControl(uniformity=_UNIFORMITY[dataset])
    return Recipe(
        model, dataset, classes, epochs, 128, 0.001, warmup=0.0, flip=flip, penalty=penalty, outliers_per_image=2
    )
