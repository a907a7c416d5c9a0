from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.metrics import roc_auc_score

from pnml_bench import model_under_test, record, runner, zoo
from pnml_bench.data import load
from pnml_bench.methods import GROUPS
from pnml_bench.options import Options
from pnml_bench.protocol import Cell, paper_plan, plan
from pnml_bench.runner import run
from pnml_bench.store import load_study

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from torch import Tensor

    from pnml_bench.results import Result

DENSENET = "densenet-bc-100"


def cells(ood: str = "svhn,isun", method: str = "baseline") -> list[Cell]:
    return plan(DENSENET, "cifar10", ood.split(","), method.split(","))


def outputs(network: zoo.Network, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with torch.no_grad():
        embeddings = network.features(network.normalise(torch.from_numpy(images).permute(0, 3, 1, 2)))
        return embeddings.double().numpy(), network.head(embeddings).double().numpy()


def naive_regret(embeddings: np.ndarray, train: np.ndarray, head: torch.nn.Linear) -> np.ndarray:
    weight, bias = (tensor.detach().double().numpy() for tensor in (head.weight, head.bias))
    unit, unit_train = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (embeddings, train))
    p = softmax(unit @ weight.T + bias, axis=1)
    correlation = unit_train.T @ unit_train
    inverse = np.linalg.pinv(correlation, rcond=1e-12, hermitian=True)
    h = np.einsum("ij,jk,ik->i", unit, inverse, unit)
    outside = np.linalg.norm(unit - unit @ inverse @ correlation, axis=1) > 1e-5
    t = np.where(outside, 1.0, h / (1 + h))[:, None]
    return np.asarray(np.log((p / (p + p**t * (1 - p))).sum(axis=1)))


def test_numbers_are_those_of_an_explicit_computation(small_world: Path) -> None:
    (result,) = run(cells("svhn"), Options(out=small_world)).results
    network = zoo.load("densenet-bc-100_cifar10")
    sets = [load("cifar10", split="train"), load("cifar10"), load("svhn")]
    (train, _), (ind, ind_logits), (ood, ood_logits) = (outputs(network, np.asarray(one.images)) for one in sets)
    labels = [0] * len(ind) + [1] * len(ood)
    msp = 1 - softmax(np.concatenate([ind_logits, ood_logits]), axis=1).max(axis=1)
    regret = naive_regret(np.concatenate([ind, ood]), train, network.head)
    assert result.scores is not None
    assert result.scores.plus_pnml is not None
    assert result.scores.method.auroc == pytest.approx(100 * roc_auc_score(labels, msp))
    assert result.scores.plus_pnml.auroc == pytest.approx(100 * roc_auc_score(labels, regret))
    assert result.accuracy == pytest.approx(100 * np.mean(ind_logits.argmax(1) == sets[1].labels))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the passes over image sets, by their description."""
    counted: Counter[str] = Counter()

    def show(batches: Iterable[Tensor], what: str, count: int) -> Iterable[Tensor]:
        counted[what] += 1
        return batches

    monkeypatch.setattr(model_under_test, "show", show)
    return counted


def test_every_set_goes_through_a_network_once_for_all_methods(small_world: Path, passes: Counter[str]) -> None:
    done = run(cells("svhn,uniform", "all"), Options(out=small_world, limit=20))
    assert [result.status for result in done.results] == ["run"] * 10
    twice = {"cifar10 train: embedding", "cifar10 test: embedding", "svhn test: embedding", "uniform test: embedding"}
    twice |= {"cifar10 train: Gram", "cifar10 test: Gram", "svhn test: Gram", "uniform test: Gram"}
    once = {"cifar10 test: ODIN", "svhn test: ODIN", "uniform test: ODIN"}
    assert passes == dict.fromkeys(twice, 2) | dict.fromkeys(once, 1)  # the OECC network is the second one
    assert done.seconds["regret"] > 0


def test_features_of_earlier_layers_are_computed_in_the_same_pass(small_world: Path, passes: Counter[str]) -> None:
    done = run(cells("svhn", "baseline,layers"), Options(out=small_world))
    found = {result.method: result for result in done.results}
    assert set(found) == {"baseline", *GROUPS["layers"]}
    assert set(passes.values()) == {1}
    assert set(passes) == {"cifar10 train: embedding", "cifar10 test: embedding", "svhn test: embedding"}
    (settings,) = found["pnml"].settings["method"]
    assert len(settings["layers"]) >= 3
    for peer in ("knn-layers", "mahalanobis-layers"):
        assert found[peer].settings["method"][0]["layers"] == settings["layers"]
    assert "layers" not in found["pnml-last"].settings["method"][0]
    (stored,) = [result for result in load_study(small_world) if result.method == "pnml"]
    assert stored.settings["method"][0]["layers"] == settings["layers"]


def test_a_killed_run_continues_where_it_stopped(small_world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, options = cells("svhn,isun", "baseline,energy"), Options(out=small_world, limit=20)
    whole = run(wanted, Options(out=small_world / "whole", limit=20)).results
    measured: list[Cell] = []

    def killed(cell: Cell, *args: object, **kwargs: object) -> Result:
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append(cell)
        return record.measure(cell, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(runner, "measure", killed)
    with pytest.raises(KeyboardInterrupt):
        run(wanted, options)
    assert {result.key for result in load_study(small_world, options.full_study)} == {cell.key for cell in wanted[:3]}
    measured.clear()
    again = run(wanted, options)
    assert measured == wanted[3:]
    assert [result.scores for result in again.results] == [result.scores for result in whole]
    measured.clear()
    finished = run(wanted, options)
    assert (measured, dict(finished.seconds)) == ([], {})
    assert finished.results == again.results


def test_absent_sets_are_reported_and_tried_again(small_world: Path, tmp_path: Path, made_images: Path) -> None:
    options = Options(out=small_world, limit=20)
    without_isun = some_images(made_images, tmp_path / "images", leave_out="iSUN")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PNML_DATA", without_isun)
        done = run(cells("isun,uniform"), options)
    assert [result.status for result in done.results] == ["not run", "run"]
    assert done.results[0].reason == "image set absent: isun"
    assert [result.status for result in run(cells("isun,uniform"), options).results] == ["run", "run"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PNML_DATA", without_isun)
        forced = run(cells("isun,uniform"), Options(out=small_world, limit=20, force=True))
    assert [result.status for result in forced.results] == ["run", "run"]


def test_own_checkpoint_and_pictures_are_named_in_the_result(
    small_world: Path, made_weights: dict[str, Path], made_images: Path
) -> None:
    mine = made_weights["densenet-bc-100_svhn"]
    pictures = str(made_images / "iSUN")
    wanted = plan(DENSENET, "cifar10", [str(made_images / "tiny-imagenet-200")], ["baseline"])
    (result,) = run(wanted, Options(out=small_world, limit=10, checkpoint=mine)).results
    assert result.ood == "tiny-imagenet-200"
    assert str(result.checkpoint).startswith("densenet-bc-100_svhn.safetensors (")
    assert "--weights densenet-bc-100_svhn.safetensors" in result.command
    with pytest.raises(ValueError, match="--force to replace it"):
        run(wanted, Options(out=small_world, limit=10))
    with pytest.raises(ValueError, match="rename it"):
        plan(DENSENET, "cifar10", [pictures], ["baseline"])


def some_images(made_images: Path, folder: Path, leave_out: str) -> str:
    """Return a data folder without one of the sets."""
    folder.mkdir()
    for path in made_images.iterdir():
        if path.name != leave_out:
            (folder / path.name).symlink_to(path)
    return str(folder)


def test_the_papers_plan_runs_available_cells_and_reports_the_others(
    small_world: Path, tmp_path: Path, made_images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PNML_DATA", some_images(made_images, tmp_path / "images", leave_out="imagenet30"))
    done = run(paper_plan(), Options(out=small_world, limit=10))
    status = Counter((result.model, result.ind, result.reason) for result in done.results)
    absent = "checkpoint absent: no {}_{} is published"
    expected: dict[tuple[str, str, str | None], int] = {}
    for ind, pairs in (("cifar10", 9), ("cifar100", 9), ("svhn", 10)):
        expected[DENSENET, ind, None] = 4 * pairs
        expected["resnet-34", ind, absent.format("resnet-34", ind)] = 3 * pairs
        expected["resnet-34", ind, absent.format("resnet-34-oecc", ind)] = pairs
    for ind in ("cifar10", "cifar100"):
        expected["wideresnet-40-2", ind, absent.format("wideresnet-40-2-energy", ind)] = 9
    for model in ("resnet-18", "resnet-101"):
        expected[model, "imagenet30", "image set absent: imagenet30"] = 8
    assert status == expected
    assert len(load_study(small_world)) == len(paper_plan()) == 258


def test_oracle_and_published_arithmetic_are_run_beside_ours(
    small_world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = cells("svhn", "baseline,odin,pnml-paper")
    plain = {result.key: result for result in run(wanted, Options(out=small_world / "plain", limit=30)).results}
    options = Options(out=small_world, limit=30, oracle=True, published=True)
    found = {(result.method, result.study): result for result in run(wanted, options).results}
    ours, suffixes = options.full_study, ("-oracle", "-published", "-oracle-published")
    assert found.keys() == {
        *((method, ours) for method in ("baseline", "odin", "pnml-paper")),
        *(("odin", ours + suffix) for suffix in suffixes),
        ("baseline", f"{ours}-published"),
    }
    for (method, study), result in found.items():
        assert (result.settings.get("arithmetic") == "published") == study.endswith("published")
        assert result.scores is not None
        if "oracle" not in study:
            assert result.scores.method == plain[result.key].scores.method  # type: ignore[union-attr]
        if study == ours:
            assert result.scores == plain[result.key].scores
        if method == "odin":
            assert result.settings["method"][0]["oracle"] == ("oracle" in study)
    best = found["odin", f"{ours}-oracle"].scores, found["odin", ours].scores
    assert best[0].method.auroc >= best[1].method.auroc  # type: ignore[union-attr]
    monkeypatch.setattr(runner, "measure", lambda *_, **__: pytest.fail("a finished cell was run again"))
    assert len(run(wanted, options).results) == 7
