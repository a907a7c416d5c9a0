"""Train the networks of the zoo, and fine-tune them with outliers.

    from pnml_bench import data, training

    recipe = training.recipe("resnet-20", "cifar10")
    train_set, test_set = data.load("cifar10", split="train"), data.load("cifar10")
    result = training.train(recipe, train_set, test_set, out="net.safetensors", report=training.log_epochs)
    result.test_accuracy

After an interruption, the same call resumes the training and ends with the same weights.
"""

from __future__ import annotations

from pnml_bench.training.loop import Progress, TrainingResult, log_epochs, train
from pnml_bench.training.outliers import TRANSFORMED
from pnml_bench.training.recipes import DATASETS, MODELS, TUNINGS, ConfidenceControl, EnergyMargins, Recipe, recipe

__all__ = [
    "DATASETS",
    "MODELS",
    "TRANSFORMED",
    "TUNINGS",
    "ConfidenceControl",
    "EnergyMargins",
    "Progress",
    "Recipe",
    "TrainingResult",
    "log_epochs",
    "recipe",
    "train",
]
