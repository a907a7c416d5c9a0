from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pnml_bench.options import Options
from pnml_bench.paper import paper_cells
from pnml_bench.protocol import Cell, paper_plan, plan


def test_the_papers_plan_has_every_cell_of_its_tables_once() -> None:
    keys = [cell.key for cell in paper_plan()]
    assert len(keys) == len(set(keys))
    printed = {cell.key for cell in paper_cells()}
    remade = {(m, i, "tinyimagenet_resize_nearest", a) for m, i, o, a in printed if o == "tinyimagenet_resize"}
    assert set(keys) == printed | remade


@pytest.mark.parametrize(
    ("cell", "checkpoint"),
    [
        (Cell("densenet-bc-100", "svhn", "isun", "gram"), "densenet-bc-100_svhn"),
        (Cell("densenet-bc-100", "svhn", "isun", "oecc"), "densenet-bc-100-oecc_svhn"),
        (Cell("densenet-bc-100", "svhn", "isun", "energy"), "densenet-bc-100_svhn"),
        (Cell("wideresnet-40-2", "cifar10", "isun", "energy"), "wideresnet-40-2-energy_cifar10"),
        (Cell("resnet-18", "imagenet30", "isun", "baseline"), "resnet-18_imagenet"),
    ],
)
def test_checkpoint_of_a_cell(cell: Cell, checkpoint: str) -> None:
    assert cell.checkpoint == checkpoint


@pytest.mark.parametrize(
    ("model", "ind", "ood", "method", "message"),
    [
        ("resnet", "cifar10", "svhn", "odin", "no model is named 'resnet': choose from densenet-bc-100"),
        ("resnet-34", "isun", "svhn", "odin", "no in-distribution set is named 'isun': choose from cifar10"),
        ("resnet-34", "cifar10", "svhn", "ODIN", "no method is named 'ODIN': choose from baseline"),
        ("resnet-34", "cifar10", "lsun", "odin", "no OOD set is named 'lsun' and there is no such path"),
        ("resnet-34", "cifar10", "cifar10", "odin", "is the in-distribution set itself"),
        ("resnet-34", "cifar10", "/", "odin", "gives its results the name ''"),
    ],
)
def test_plan_raises_for_unknown_names(model: str, ind: str, ood: str, method: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(model, ind, [ood], [method])


def test_options_raise_for_invalid_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("limit", "noise_seeds", "batch_size"):
        given: dict[str, Any] = {name: 0}
        with pytest.raises(ValueError, match=f"{name} is 0"):
            Options(**given)
    with pytest.raises(ValueError, match="no device 'abacus'"):
        _ = Options(device="abacus").torch_device
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="--device cpu"):
        _ = Options(device="cuda").torch_device
    assert Options().torch_device == torch.device("cpu")


def test_the_command_repeats_every_option_that_changes_numbers() -> None:
    options = Options(device="cpu", study="mine", checkpoint=Path("folder/my weights.pt"), noise_seeds=3, limit=5)
    assert options.command == (
        "pnml bench --model {model} --ind {ind} --ood {ood} --method {method} --device cpu --batch-size 50 "
        "--noise-seeds 3 --limit 5 --weights 'my weights.pt' --study mine"
    )
