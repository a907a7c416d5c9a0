from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pnml_bench.clock import Clock
from pnml_bench.model_under_test import DatasetCache
from pnml_bench.options import Options, Variant
from pnml_bench.paper import paper_cells
from pnml_bench.protocol import Cell, paper_plan, plan
from pnml_bench.results import Result
from pnml_bench.summary import absent


def test_the_papers_plan_has_every_cell_of_its_tables_once() -> None:
    keys = [cell.key for cell in paper_plan()]
    assert len(keys) == len(set(keys))
    printed = {cell.key for cell in paper_cells()}
    remade = {(m, i, "tinyimagenet_resize_nearest", a) for m, i, o, a in printed if o == "tinyimagenet_resize"}
    assert set(keys) == printed | remade


def test_all_takes_the_papers_sets_and_every_method() -> None:
    cells = plan("densenet-bc-100", "svhn", ["all"], ["all"])
    assert {(cell.ood, cell.method) for cell in cells} == {
        (ood, method)
        for ood in {cell.ood for cell in paper_cells() if cell.ind == "svhn"} | {"tinyimagenet_resize_nearest"}
        for method in ("baseline", "odin", "gram", "oecc", "energy")
    }


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


def test_limit_and_oracle_have_studies_of_their_own() -> None:
    assert Options().full_study == "paper"
    assert Options().study_of(Variant(oracle=True)) == "paper-oracle"
    assert Options(study="peers", limit=5).study_of(Variant(oracle=True)) == "peers-limit-5-oracle"


def test_the_command_repeats_every_option_that_changes_numbers() -> None:
    options = Options(device="cpu", study="mine", checkpoint=Path("folder/my weights.pt"), noise_seeds=3, limit=5)
    assert options.command == (
        "pnml bench --model {model} --ind {ind} --ood {ood} --method {method} --device cpu --batch-size 50 "
        "--noise-seeds 3 --limit 5 --weights 'my weights.pt' --study mine"
    )


def test_batches_are_larger_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert Options().torch_device == torch.device("cuda")
    assert Options().images_at_once > Options(device="cpu").images_at_once


def test_an_inner_stage_is_not_counted_in_the_outer(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 11.0, 14.0, 20.0, 21.0])
    monkeypatch.setattr("pnml_bench.clock.perf_counter", lambda: next(times))
    clock = Clock(torch.device("cpu"))
    with clock("outer"), clock("inner"):  # outer 0-1, inner 1-11, outer 11-14
        pass
    with clock.lap() as lap, clock("other"):
        pass
    assert clock.seconds == {"outer": 4.0, "inner": 10.0, "other": 1.0}
    assert lap == {"other": 1.0}


def test_large_sets_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pnml_bench.model_under_test._LARGEST", 2 * 32 * 32 * 3)
    assert DatasetCache(limit=2).load("uniform") is not None
    small, large = DatasetCache(limit=2), DatasetCache(limit=3)
    assert small.load("uniform") is small.load("uniform")
    assert large.load("uniform") is not large.load("uniform")
    assert small.load("uniform") is not small.load("uniform", seed=1)


def test_absent_groups_cells_by_reason() -> None:
    found = [("isun", "odin", "a"), ("isun", "gram", "b"), ("svhn", "odin", "a")]
    results = [
        Result(model="resnet-34", ind="cifar10", ood=ood, method=method, reason=reason) for ood, method, reason in found
    ]
    assert absent(results) == [
        "ResNet-34, CIFAR-10 against iSUN, SVHN with ODIN: a",
        "ResNet-34, CIFAR-10 against iSUN with Gram: b",
    ]
