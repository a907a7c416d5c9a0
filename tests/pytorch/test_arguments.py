"""What a guard is made with is checked at once, not when it is first used."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

import pnml

from .networks import mlp

LINEAR = r"\['0', '3'\]"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("model.pt", "got str: build the network and load its weights first"),
        (mlp().state_dict(), r"got OrderedDict: .*model\.load_state_dict"),
        (type("Estimator", (), {"predict_proba": None})(), r"got Estimator: .*pnml\.PNMLClassifier\(model\)"),
    ],
)
def test_what_is_no_model_is_refused(model: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        pnml.guard(model)


def test_a_head_is_given_by_its_name() -> None:
    model = mlp()
    with pytest.raises(TypeError, match="must be the name of a layer, got Linear: give its name, head='3'"):
        pnml.guard(model, head=model[3])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=f"got Linear: give its name, of its linear layers {LINEAR}"):
        pnml.guard(model, head=nn.Linear(2, 2))  # type: ignore[arg-type]


def test_layers_are_given_by_their_names() -> None:
    with pytest.raises(TypeError, match="layers must be names of modules, got 1"):
        pnml.guard(mlp(), layers=[1])  # type: ignore[list-item]
    for layers in (None, 4):
        with pytest.raises(
            TypeError, match=f'layers must be "auto", "last" or a list of names of modules, got {layers}'
        ):
            pnml.guard(mlp(), layers=layers)  # type: ignore[arg-type]


def test_an_unknown_scale_is_refused_before_the_first_batch() -> None:
    with pytest.raises(ValueError, match=r"embedding_scale must be one of \('auto', .*got 'none'"):
        pnml.guard(mlp(), embedding_scale="none")  # type: ignore[arg-type]
