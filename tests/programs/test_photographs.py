"""The program of OpenOOD's protocol and TinyImageNet-200, its tables, and the near set that it takes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pnml.metrics import Metrics
from pnml_bench.protocol import plan
from pnml_bench.results import Result, Scores
from studies.photographs import openood

pages = import_module("studies.photographs.page")
program = import_module("studies.photographs.run")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder that has the near set of TinyImageNet and nothing else."""
    (tmp_path / "data" / "imagenet-others").mkdir(parents=True)
    monkeypatch.setenv("PNML_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PNML_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


def option(job: Any, name: str) -> str:
    return str(job.words[job.words.index(name) + 1])


def planned(tmp_path: Path, **options: Any) -> list[Any]:
    return list(program.PhotographsPlan(tmp_path, **options).jobs())


@pytest.mark.usefixtures("data")
def test_plan_has_every_network_with_its_seed_and_study(tmp_path: Path) -> None:
    jobs = planned(tmp_path)
    trainings, benches = [job for job in jobs if job.trains], [job for job in jobs if not job.trains]
    assert len(trainings) == len(benches) == len({job.name for job in benches}) == 12
    for training, bench in zip(trainings, benches, strict=True):
        weights = Path(option(training, "--out"))
        assert bench.needs == weights == Path(option(bench, "--weights"))
        assert weights.stem.endswith(f"_seed-{option(training, '--seed')}")
        assert option(bench, "--study").endswith(f"-seed-{option(training, '--seed')}")
        words = [option(bench, f"--{name}") for name in ("model", "ind", "ood", "method")]
        assert plan(words[0], words[1], words[2].split(","), words[3].split(","))
    networks = [tuple(option(job, name) for name in ("--model", "--dataset", "--seed")) for job in trainings]
    assert {ind for _, ind, _ in networks[:6]} == {"cifar10", "cifar100"}
    assert networks[6:8] == [("resnet-18-small", "tinyimagenet", "0"), ("vit-small", "tinyimagenet", "0")]


def test_near_set_is_left_out_where_it_is_absent(tmp_path: Path, data: Path) -> None:
    (tiny,) = (job for job in planned(tmp_path) if job.name == "bench_vit-small_tinyimagenet_seed-2")
    assert option(tiny, "--ood").split(",") == [str(data / "imagenet-others"), *program.TINY_FAR]
    (data / "imagenet-others").rmdir()
    (tiny,) = (job for job in planned(tmp_path) if job.name == "bench_vit-small_tinyimagenet_seed-2")
    assert option(tiny, "--ood").split(",") == list(program.TINY_FAR)


def result(study: str, model: str, ind: str, ood: str, auroc: float, *, method: str = "knn") -> Result:
    return Result(
        model=model,
        ind=ind,
        ood=ood,
        method=method,
        study=study,
        scores=Scores(Metrics(auroc, 40.0, 50.0, 0.0, 0.0, 0.0)),
        counts={"ood": 1200},
        accuracy=50.0,
        settings={"notes": {"ood": "1,200 of the 5,640 published images"}} if ood == "textures" else {},
    )


def test_summary_has_the_place_among_methods_that_need_no_ood_data() -> None:
    aurocs = {"knn": 70.0, "rmd": 60.0, "knn-layers": 90.0, "mahalanobis-layers": 50.0, "nci": 99.0, "pnml": 80.0}
    made = [
        result(openood.study(seed), openood.MODEL, "cifar10", ood, auroc - seed, method=method)
        for seed in openood.SEEDS
        for ood in ("cifar100", "tinyimagenet", *openood.FAR)
        for method, auroc in {**aurocs, "pnml-last": 85.0}.items()
    ]
    heads, _, line = pages.summary(made).splitlines()
    assert [word.strip() for word in heads.strip("|").split("|")] == list(pages.STANDINGS)
    words = [word.strip() for word in line.strip("|").split("|")]
    assert words == ["OpenOOD, CIFAR-10", "3", "79.0", "2", "69.0 (knn)", "89.0 (knn-layers)"]
    assert pages.summary([]) == pages.NOT_YET
