"""The hyperparameters of each training, and the penalties on the logits of outliers that tuning adds."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from pnml.backend.suggest import did_you_mean

if TYPE_CHECKING:
    from torch import Tensor


class Penalty(Protocol):
    """A term added to the cross entropy; ``name`` selects it in :func:`pnml_bench.training.recipe`."""

    name: ClassVar[str]

    def __call__(self, inlier_logits: Tensor, outlier_logits: Tensor, train_accuracy: float, /) -> Tensor:
        """Compute the term, a scalar.

        Args:
            inlier_logits: logits of training images, (n, C).
            outlier_logits: logits of outliers, (k, C).
            train_accuracy: of the network before tuning, between 0 and 1.
        """


@dataclass(frozen=True)
class EnergyMargins:
    """Squared hinge losses that separate the energies E = −logsumexp(logits) (Liu et al., 2020), in nats.

    weight · (mean relu(E_in − inside)² + mean relu(outside − E_out)²)

    Attributes:
        inside: no penalty for training images whose energy is below this.
        outside: no penalty for outliers whose energy is above this.
        weight: weight of the term relative to the cross entropy.

    >>> import torch
    >>> margins = EnergyMargins(inside=-23.0)
    >>> margins(torch.tensor([[25.0, 0.0]]), torch.tensor([[0.0, 0.0]]), 1.0)
    tensor(0.)
    >>> margins(torch.tensor([[13.0, -90.0]]), torch.tensor([[0.0, 0.0]]), 1.0)
    tensor(10.)
    """

    name: ClassVar[str] = "energy"

    inside: float
    outside: float = -5.0
    weight: float = 0.1

    def __call__(self, inlier_logits: Tensor, outlier_logits: Tensor, _train_accuracy: float, /) -> Tensor:
        """Compute the term for logits (n, C) of training images and (k, C) of outliers."""
        too_high = (-inlier_logits.logsumexp(dim=1) - self.inside).relu()
        too_low = (self.outside + outlier_logits.logsumexp(dim=1)).relu()
        return self.weight * (too_high.square().mean() + too_low.square().mean())


@dataclass(frozen=True)
class ConfidenceControl:
    """Confidence near the training accuracy, uniform predictions on outliers: OECC (Papadopoulos et al., 2021).

    confidence · (A − mean max p_in)² + uniformity · Σ |1/C − p_out|, where A is the training accuracy before tuning
    and the sum is over the classes and the outliers of a batch. The defaults are the authors' for CIFAR; their code
    instead sums the first square over images, with a fixed A near the test accuracy.

    Attributes:
        confidence: the paper's λ₁.
        uniformity: the paper's λ₂.

    >>> import torch
    >>> confident, uniform = torch.tensor([[90.0, 0.0]]), torch.tensor([[0.0, 0.0]])
    >>> control = ConfidenceControl()
    >>> control(confident, uniform, 1.0), control(confident, confident, 1.0)
    (tensor(0.), tensor(0.0500))
    """

    name: ClassVar[str] = "oecc"

    confidence: float = 0.07
    uniformity: float = 0.05

    def __call__(self, inlier_logits: Tensor, outlier_logits: Tensor, train_accuracy: float, /) -> Tensor:
        """Compute the term for logits (n, C) of training images and (k, C) of outliers."""
        gap = train_accuracy - inlier_logits.softmax(dim=1).amax(dim=1).mean()
        variation = (1 / outlier_logits.shape[1] - outlier_logits.softmax(dim=1)).abs().sum()
        return self.confidence * gap.square() + self.uniformity * variation


DATASETS = {"cifar10": 10, "cifar100": 100, "svhn": 10, "tinyimagenet": 200}  # number of classes
TRANSFORMER = "vit-small"
MODELS = ("densenet-bc-100", "resnet-34", "wideresnet-40-2", "resnet-20", "resnet-18-small", TRANSFORMER)
TUNINGS = (EnergyMargins.name, ConfidenceControl.name)


@dataclass(frozen=True)
class Recipe:
    """SGD with Nesterov momentum, or AdamW; per batch, the learning rate warms up linearly, then follows its schedule.

    Weight decay applies to every parameter, including batch norms and biases. Images are shifted and flipped
    horizontally.

    Attributes:
        model: the network's name in :mod:`pnml_bench.zoo`.
        dataset: the image set's name in :mod:`pnml_bench.data`.
        num_classes: its number of classes.
        epochs: passes over the training set; an incomplete last batch is dropped.
        batch_size: training images per step.
        lr: the maximum learning rate.
        momentum: the Nesterov momentum; AdamW does without it.
        weight_decay: the L2 penalty; of AdamW, the decoupled decay.
        warmup: the fraction of steps in which the learning rate rises.
        schedule: "cosine", to 0, or "steps": a tenth of the rate after half of the steps, a hundredth after 75 %.
        black_border: whether shifted images are black beyond their border, as by most authors, or reflected there.
        label_smoothing: of the cross entropy.
        flip: whether images are flipped; digits are not.
        max_shift: the most pixels that images are shifted by.
        optimizer: "sgd" or "adamw".
        penalty: the term that tuning adds to the cross entropy.
        outliers_per_image: outliers per training image in a step.

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
    schedule: Literal["cosine", "steps"] = "cosine"
    black_border: bool = False
    label_smoothing: float = 0.0
    flip: bool = True
    max_shift: int = 4
    optimizer: Literal["sgd", "adamw"] = "sgd"
    penalty: Penalty | None = None
    outliers_per_image: int = 0

    def __post_init__(self) -> None:
        for field, value, minimum in (("epochs", self.epochs, 1), ("batch_size", self.batch_size, 2)):
            if value < minimum:
                raise ValueError(f"expected {field} to be at least {minimum}, got {value}")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"expected lr, the learning rate, to be a positive number, got {self.lr}")
        if not 0 <= self.warmup < 1:
            raise ValueError(
                f"expected warmup, a fraction of the steps, to be at least 0 and below 1, got {self.warmup}"
            )
        if (self.penalty is None) != (self.outliers_per_image == 0):
            raise ValueError(
                f"expected both a penalty and outliers or neither, got penalty={self.penalty} and "
                f"outliers_per_image={self.outliers_per_image}"
            )

    @property
    def name(self) -> str:
        """The name of the result: model, tuning and set."""
        tuned = "" if self.penalty is None else f"-{self.penalty.name}"
        return f"{self.model}{tuned}_{self.dataset}"

    def to_json(self) -> str:
        """Return the recipe as JSON, for the metadata of a checkpoint."""
        return json.dumps(asdict(self), sort_keys=True)

    def lr_at(self, step: int, steps: int) -> float:
        """Return the learning rate of step 0, 1, ... of ``steps``.

        >>> [round(Recipe("resnet-20", "cifar10", 10, 1, 128, lr=1.0, warmup=0.2).lr_at(i, 10), 2) for i in range(10)]
        [0.33, 0.67, 1.0, 0.96, 0.85, 0.69, 0.5, 0.31, 0.15, 0.04]
        """
        warmup_steps = round(self.warmup * steps)
        if step < warmup_steps:
            return self.lr * (step + 1) / (warmup_steps + 1)
        if self.schedule == "steps":
            return self.lr * 0.1 ** sum(step >= share * steps for share in _STEPS)
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / (steps - warmup_steps)))


_DEFAULT_SCHEDULE = (100, 256, 0.2)  # epochs, batch size, learning rate
_SCHEDULES = {
    ("resnet-20", "cifar10"): (150, 256, 0.2),
    ("resnet-20", "cifar100"): (150, 256, 0.2),
    ("resnet-18-small", "cifar10"): (100, 128, 0.1),  # as OpenOOD trains it
    ("resnet-18-small", "cifar100"): (100, 128, 0.1),
    **{(model, "svhn"): (100, 128, 0.1) for model in MODELS},
}
_STEPS = (0.5, 0.75)  # shares of the training
_AS_PUBLISHED: dict[str, dict[str, Any]] = {  # by the sources that the paper's checkpoints come from
    "resnet-34": {"epochs": 200, "schedule": "steps"},  # Lee et al., 2018
    "wideresnet-40-2": {"epochs": 100, "schedule": "cosine"},  # Hendrycks et al., 2019; Liu et al., 2020
}
_PUBLISHED_BATCH: dict[str, Any] = {"batch_size": 128, "lr": 0.1, "warmup": 0.0, "black_border": True}
_ENERGY_INSIDE = {"cifar10": -23.0, "cifar100": -27.0, "svhn": -23.0}  # the authors give no value for SVHN
_UNIFORMITY = {"cifar10": 0.05, "cifar100": 0.05, "svhn": 0.03}
_OECC_EPOCHS = {"cifar10": 15, "cifar100": 10, "svhn": 5}


def recipe(model: str, dataset: str, *, tune: str | None = None) -> Recipe:
    """Return the recipe for a network on a set; change it with ``dataclasses.replace``.

    Args:
        model: one of ``MODELS``; "vit-small" is for "tinyimagenet" alone.
        dataset: one of ``DATASETS``.
        tune: "energy" or "oecc", to tune a trained network with outliers. As by their authors, a step has 128 training
            images and 256 outliers and the learning rate starts at 0.001, for 10 epochs with energy and 15, 10 and 5
            with OECC on CIFAR-10, CIFAR-100 and SVHN. There are no values for TinyImageNet.

    On CIFAR and SVHN, ResNet-34 and WideResNet-40-2 are trained as their publishers did: batches of 128, a learning
    rate of 0.1, and black borders; 200 epochs in steps, and 100 epochs by a cosine.

    >>> recipe("resnet-20", "cifar10").epochs
    150
    >>> recipe("wideresnet-40-2", "cifar100", tune="energy").penalty
    EnergyMargins(inside=-27.0, outside=-5.0, weight=0.1)
    """
    for value, known, what in ((model, MODELS, "model"), (dataset, DATASETS, "dataset"), (tune, TUNINGS, "tuning")):
        if value is not None and value not in known:
            expected = f"expected one of {', '.join(known)}{did_you_mean(value, known)}"
            raise ValueError(f"no recipe for the {what} {value!r}: {expected}")
    if model == TRANSFORMER and dataset != "tinyimagenet":
        raise ValueError(f"no recipe for {model} on {dataset}: it takes 64×64 images, train it on tinyimagenet")
    if dataset == "tinyimagenet":
        return _tinyimagenet(model, tune)
    classes, flip = DATASETS[dataset], dataset != "svhn"
    if tune is None:
        if model in _AS_PUBLISHED:
            return Recipe(model, dataset, classes, flip=flip, **_PUBLISHED_BATCH, **_AS_PUBLISHED[model])
        epochs, batch_size, lr = _SCHEDULES.get((model, dataset), _DEFAULT_SCHEDULE)
        return Recipe(model, dataset, classes, epochs, batch_size, lr, flip=flip)
    penalty: Penalty
    if tune == EnergyMargins.name:
        epochs, penalty = 10, EnergyMargins(inside=_ENERGY_INSIDE[dataset])
    else:
        epochs, penalty = _OECC_EPOCHS[dataset], ConfidenceControl(uniformity=_UNIFORMITY[dataset])
    step = _PUBLISHED_BATCH | {"lr": 0.001, "outliers_per_image": 2}
    return Recipe(model, dataset, classes, epochs, flip=flip, penalty=penalty, **step)


def _tinyimagenet(model: str, tune: str | None) -> Recipe:
    """Return the recipe for a network on TinyImageNet, whose images are twice as large as the others'."""
    dataset, classes, shift = "tinyimagenet", DATASETS["tinyimagenet"], 8
    if tune is not None:
        raise ValueError(f"no recipe for the tuning {tune!r} on {dataset}: expected one of cifar10, cifar100, svhn")
    if model != TRANSFORMER:
        epochs, batch_size, lr = _DEFAULT_SCHEDULE
        return Recipe(model, dataset, classes, epochs, batch_size, lr, max_shift=shift)
    return Recipe(
        model,
        dataset,
        classes,
        epochs=200,
        batch_size=512,
        lr=1e-3,
        weight_decay=0.05,
        label_smoothing=0.1,
        max_shift=shift,
        optimizer="adamw",
    )
