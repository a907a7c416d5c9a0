from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pnml_bench import zoo
from pnml_bench.data import SETS
from pnml_bench.training import DATASETS, MODELS, TUNINGS, ConfidenceControl, recipe
from pnml_bench.training.recipes import TRANSFORMER


@pytest.mark.parametrize("model", [model for model in MODELS if model != TRANSFORMER])
@pytest.mark.parametrize("dataset", [dataset for dataset in DATASETS if dataset != "tinyimagenet"])
@pytest.mark.parametrize("tune", [None, *TUNINGS])
def test_recipe_exists_for_every_combination(model: str, dataset: str, tune: str | None) -> None:
    plan = recipe(model, dataset, tune=tune)
    assert plan.model in zoo.ARCHITECTURES
    assert plan.dataset in SETS
    assert plan.flip == (dataset != "svhn")
    assert json.loads(plan.to_json())["lr"] == plan.lr


def test_learning_rate_warms_up_then_falls_to_zero() -> None:
    plan = recipe("densenet-bc-100", "cifar10")
    rates = [plan.lr_at(step, 1000) for step in range(1000)]
    top = rates.index(max(rates))
    assert max(rates) == plan.lr
    assert top == 50
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0 < rates[-1] < 1e-5
    assert rates[525] == pytest.approx(plan.lr / 2)


def test_published_recipes_have_their_authors_schedules() -> None:
    steps = recipe("resnet-34", "svhn")
    assert (steps.epochs, steps.batch_size, steps.black_border) == (200, 128, True)
    assert [steps.lr_at(step, 100) for step in (0, 49, 50, 74, 75, 99)] == pytest.approx(
        [0.1, 0.1, 0.01, 0.01, 1e-3, 1e-3]
    )
    cosine = recipe("wideresnet-40-2", "cifar100")
    assert cosine.epochs == 100
    assert [cosine.lr_at(step, 100) for step in (0, 50)] == pytest.approx([0.1, 0.05])
    assert [recipe("resnet-34", name, tune="oecc").epochs for name in ("cifar10", "cifar100", "svhn")] == [15, 10, 5]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("vgg", "cifar10", None), "model 'vgg': expected one of densenet-bc-100"),
        (("resnet-20", "mnist", None), "dataset 'mnist': expected one of cifar10"),
        (("resnet-20", "cifar10", "odin"), "tuning 'odin': expected one of energy, oecc"),
        (("resnet-34", "tinyimagenet", "oecc"), "tuning 'oecc' on tinyimagenet: expected one of cifar10"),
        (("vit-small", "cifar10", None), "vit-small on cifar10: it takes 64×64 images, train it on tinyimagenet"),
    ],
)
def test_unknown_name_raises(names: tuple[str, str, str | None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe(names[0], names[1], tune=names[2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs to be at least 1, got 0"),
        ({"batch_size": 1}, "batch_size to be at least 2, got 1"),
        ({"lr": -0.1}, "positive number, got -0.1"),
        ({"lr": float("nan")}, "positive number, got nan"),
        ({"warmup": 1.0}, "below 1, got 1.0"),
        ({"penalty": ConfidenceControl()}, "outliers_per_image=0"),
    ],
)
def test_value_out_of_range_raises(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(recipe("resnet-20", "cifar10"), **change)
