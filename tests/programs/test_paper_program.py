"""The program that measures the paper: its plan has every cell that can be had."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bench.training.small import small_recipe, small_set
from pnml_bench.options import Options
from pnml_bench.paper import REMADE, paper_cells
from pnml_bench.protocol import plan
from pnml_bench.training import train

program = import_module("studies.paper.run")
trainings = import_module("studies.trainings")

ABSENT = {"lsun_crop", "lsun_resize"}


@pytest.fixture
def jobs(tmp_path: Path) -> list[Any]:
    return list(program.PaperPlan(tmp_path).jobs())


def option(job: Any, name: str) -> str:
    return str(job.words[job.words.index(name) + 1])


def test_plan_has_every_cell_that_can_be_measured(jobs: list[Any]) -> None:
    found: set[tuple[str, ...]] = set()
    for job in jobs:
        if "bench" in job.words and option(job, "--study") in {"paper", "retrained"}:
            words = {name: option(job, f"--{name}") for name in ("model", "ind", "ood", "method")}
            cells = plan(words["model"], words["ind"], words["ood"].split(","), words["method"].split(","))
            keys = {cell.key for cell in cells}
            assert not keys & found, "two jobs would write one cell"
            found |= keys
    wanted = {cell.key for cell in paper_cells() if cell.ind != "imagenet30" and cell.ood not in ABSENT}
    assert {(model, ind, REMADE.get(ood, ood), method) for model, ind, ood, method in wanted} <= found


def test_jobs_have_names_of_their_own_and_need_weights_that_others_write(jobs: list[Any]) -> None:
    assert len({job.name for job in jobs}) == len(jobs)
    written = {Path(option(job, "--out")) for job in jobs if job.trains}
    assert {job.needs for job in jobs if job.needs is not None} <= written
    assert [job.urgency for job in jobs] == sorted(job.urgency for job in jobs)


def test_trainings_are_noted_by_the_name_that_results_have(tmp_path: Path) -> None:
    weights, results = tmp_path / "weights", tmp_path / "results"
    results.mkdir()
    trainings.note_trainings(weights, results)
    assert trainings.read_trainings(results) == {}
    path = train(
        small_recipe(epochs=2), small_set(32, 0), small_set(8, 1), out=weights / "net.safetensors", seed=3
    ).path
    path.with_name("other.partial.safetensors").write_bytes(path.read_bytes())
    trainings.note_trainings(weights, results)
    trainings.note_trainings(tmp_path / "nothing", results)
    (noted,) = trainings.read_trainings(results).items()
    assert noted[0] == Options(checkpoint=path).own_checkpoint
    assert (noted[1]["epochs"], noted[1]["seed"], noted[1]["train_images"]) == ("2", "3", "32")
    assert noted[1]["recipe"]["batch_size"] == 16
