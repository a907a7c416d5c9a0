"""Test what the programs of the families share, and their tables, on made-up rows."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from pnml.pytorch.layers import find_layers

ROOT = Path(__file__).parents[2]


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> Any:
    return import_module("studies.families.family")


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    return import_module("studies.families.tables")


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(6, 12), nn.Tanh())
        self.head = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.hidden(x))
        return logits


def made_task(family: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Classifier().eval()
    layers = find_layers(model, (torch.zeros(4, 6),), head=family.HEAD)

    def part(scale: float, count: int) -> Any:
        rows = scale * torch.randn(count, 6, generator=generator)
        return family.run_model(model, layers, [{"x": batch} for batch in torch.split(rows, 50)])

    labels = np.arange(300) % 3
    train, test = part(1.0, 300)._replace(labels=labels), part(1.0, 60)._replace(labels=labels[:60])
    return family.Task(model.head, layers, train, test, {"near: some": part(1.5, 60), "far: others": part(5.0, 60)})


def test_run_model_returns_embeddings_and_features_in_order(family: Any) -> None:
    model = Classifier().eval()
    rows = torch.randn(7, 6, generator=torch.Generator().manual_seed(1))
    layers = find_layers(model, (rows,), head=family.HEAD)
    part = family.run_model(model, layers, [{"x": rows[:4]}, {"x": rows[4:]}])
    with torch.no_grad():
        torch.testing.assert_close(part.embeddings, model.hidden(rows))
    assert [len(layer) for layer in part.features] == [7] * len(layers)
    chosen = part.of(np.array([5, 0]))
    assert torch.equal(chosen.embeddings, part.embeddings[[5, 0]])


def test_measure_gives_every_method_an_auroc_or_a_reason(family: Any) -> None:
    task = made_task(family)
    found = family.measure(task)
    assert set(found["auroc"]) | set(found["failed"]) == set(family.METHODS)
    assert found["rows"] == {"train": 300, "test": 60, "near: some": 60, "far: others": 60}
    with torch.no_grad():
        test, far = (torch.softmax(task.head(part.embeddings), dim=1) for part in (task.test, task.oods["far: others"]))
    msp = -torch.cat([test, far]).max(dim=1).values.numpy()
    expected = 100 * roc_auc_score([0] * 60 + [1] * 60, msp)
    assert found["auroc"]["baseline"]["far: others"] == pytest.approx(expected, abs=0.01)
    assert found["accuracy"] == pytest.approx(
        100 * float((test.argmax(dim=1).numpy() == task.test.labels).mean()), abs=0.01
    )


def test_a_finished_task_is_not_run_again(family: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(name: str) -> Any:
        made.append(name)
        return made_task(family)

    out = tmp_path / "record.json"
    monkeypatch.setattr(family, "METHODS", ("baseline", "pnml"))
    tasks = {name: (lambda name=name: make(name)) for name in ("a/0", "a/1")}
    monkeypatch.setattr(sys, "argv", ["text.py", "--data", str(tmp_path), "--out", str(out), "--only", "/0"])
    family.run_family("text", "about", lambda _: tasks)
    monkeypatch.setattr(sys, "argv", ["text.py", "--data", str(tmp_path), "--out", str(out)])
    family.run_family("text", "about", lambda _: tasks)
    assert made == ["a/0", "a/1"]
    record = json.loads(out.read_text())
    assert list(record["tasks"]) == ["a/0", "a/1"]
    assert {"commit", "dirty", "auroc", "fpr"} <= record["tasks"]["a/0"].keys()


def made_record(methods: dict[str, tuple[float, float]], names: tuple[str, ...] = ("one", "two")) -> dict[str, Any]:
    """Return a record of two tasks with two seeds: AUROC near and far, one point more with seed 1."""

    def task(seed: int) -> dict[str, Any]:
        auroc = {name: {"near: a": near + seed, "far: b": far + seed} for name, (near, far) in methods.items()}
        return {"accuracy": 90.0 + seed, "auroc": auroc, "fpr": auroc, "failed": {"she": "it failed"}}

    return {"tasks": {f"{name}/{seed}": task(seed) for name in names for seed in (0, 1)}}


def test_the_table_has_means_and_spreads_and_sorts(tables: Any) -> None:
    record = made_record({"dice": (99.0, 99.0), "gen": (60.0, 70.0), "pnml": (80.0, 90.0)})
    text = tables.table(record, "text")
    assert "4 classifiers, 2 seeds; test accuracy 90.0 to 91.0%" in text
    whole, by_set = (
        [[cell.strip() for cell in line.split("|")[1:-1]] for line in part.splitlines() if line.startswith("|")]
        for part in text.split("Mean AUROC by set")
    )
    rows = whole[2:]
    assert [row[0] for row in rows] == ["pnml", "gen", "she", "dice"]
    assert by_set[0] == ["Method", "one", "two"]
    assert by_set[2:] == [["pnml", "85.5 ± 0.7", "85.5 ± 0.7"], ["gen", "65.5 ± 0.7", "65.5 ± 0.7"]]
    assert rows[0][1:5] == ["yes", "80.5 ± 0.7", "90.5 ± 0.7", "85.5 ± 0.7"]
    assert rows[2][2:] == ["–"] * 5
    assert rows[3][1] == "no"


def test_the_pages_are_those_of_the_records(tables: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = ROOT
    written = {name: (root / "docs" / name).read_text(encoding="utf-8") for name in tables.PAGES}
    for name, text in written.items():
        (tmp_path / name).write_text(text.replace("| pnml ", "| else "), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["tables", "--pages", str(tmp_path)])
    tables.main()
    for name, text in written.items():
        assert (tmp_path / name).read_text(encoding="utf-8") == text
