"""One's own network on published sets, one's own method on networks of the zoo, and the example of the guide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from pnml_bench import zoo
from pnml_bench.data import load
from pnml_bench.store import load_study

from .files import MINE, bench, pnml

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def results(small_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for results, beside ``mine.py``, with made images in place of the published ones."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE.replace("nn.Linear(8, 3)", "nn.Linear(8, 10)"))
    return small_world


def test_ones_own_network_runs_on_published_sets(results: Path) -> None:
    done = bench(
        f"--model mine.py:create --ind cifar10 --ood svhn,uniform --method energy,knn --limit 60 --out {results}"
    )
    assert done.exit_code == 0, done.output
    found = {result.key: result for result in load_study(results, "own-limit-60")}
    result = found["mine-create", "cifar10", "svhn", "energy"]
    assert result.settings["own"]["sets"] == {}
    assert result.settings["own"]["preparation"]["shape"] == [32, 32]
    assert result.counts["train"] == 60


def nearest_mean(network: zoo.Network, limit: int) -> float:
    """Compute the AUROC of the distance to the nearest class mean by hand."""

    def embeddings(name: str, split: str = "test") -> np.ndarray:
        pixels = torch.from_numpy(np.array(load(name, split=split, limit=limit).images)).permute(0, 3, 1, 2)
        with torch.no_grad():
            return network.features(network.normalise(pixels)).double().numpy()

    labels = load("cifar10", split="train", limit=limit).labels
    assert labels is not None
    train = embeddings("cifar10", "train")
    means = np.stack([train[labels == number].mean(axis=0) for number in np.unique(labels)])
    scores = [np.linalg.norm(x[:, None] - means, axis=2).min(axis=1) for x in map(embeddings, ("cifar10", "svhn"))]
    return float(100 * roc_auc_score(np.repeat([0, 1], [len(x) for x in scores]), np.concatenate(scores)))


def test_ones_own_method_runs_on_a_network_of_the_zoo(results: Path) -> None:
    words = "--model densenet-bc-100 --ind cifar10 --ood svhn --method baseline,mine.py:Detector"
    assert bench(f"{words} --out {results} --limit 40").exit_code == 0
    found = {result.method: result for result in load_study(results, "paper-limit-40")}
    scores = found["mine-detector"].scores
    assert scores is not None
    network = zoo.load("densenet-bc-100_cifar10")
    assert scores.method.auroc == pytest.approx(nearest_mean(network, 40), abs=1.0)
    assert set(found["mine-detector"].settings["own"]) == {"method"}
    assert "own" not in found["baseline"].settings
    assert "pnml bench --model densenet-bc-100 --ind cifar10 --ood svhn" in found["mine-detector"].command
    assert "mine-detector" in pnml(f"leaderboard --results {results}").stdout
    tables = pnml(f"tables --results {results}")
    assert tables.exit_code == 0
    assert "1 of 2 results have no cell in the paper's tables" in tables.stderr


def test_paper_refuses_what_is_ones_own(results: Path) -> None:
    for words in ("--model mine.py:create", "--ind photos", "--method mine.py:Detector"):
        done = bench(f"--paper {words} --out {results}")
        assert done.exit_code == 2
        assert "--paper runs the paper's networks, sets and methods: leave --model" in done.stderr
