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


def test_the_table_of_folds_has_networks_with_their_accuracy(tables: Any) -> None:
    record = made_record(dict.fromkeys(("gen", "vim", "knn", "rmd", "react", "energy"), (60.0, 70.0)))
    for task in record["tasks"].values():
        task["auroc"]["pnml"] = {"near: a": 50.0, "far: b": 50.0}
    record["tasks"]["two/1"]["accuracy"] = 80.0
    text = tables.table(record, "imagenet")
    assert "2 classifiers, 2 folds; test accuracy over all folds: one 90.5%, two 85.0%." in text
    assert "mean over classifiers and folds ± standard deviation over folds." in text
    _, _, by_network = text.partition("Mean AUROC by network, of the first 6 and pnml:")
    assert by_network.count("\n| ") == 8
    assert "| pnml   | 50.0 ± 0.0 | 50.0 ± 0.0 |" in by_network


def write_text_records(folder: Path, methods: dict[str, tuple[float, float]]) -> None:
    """Write records of both sets of questions: on the fine-tuned classifiers of the first, ``pnml`` is behind."""
    for name, frozen in (("text", "banking77"), ("clinc150", "frozen")):
        record = made_record(methods, (frozen, "fine-tuned"))
        if name == "text":
            for seed, near in ((0, 60.0), (1, 40.0)):
                record["tasks"][f"fine-tuned/{seed}"]["auroc"]["pnml"] = {"near: a": near, "far: b": 70.0}
        (folder / f"{name}.json").write_text(json.dumps(record), encoding="utf-8")


def cells(table: str) -> list[list[str]]:
    """Return the cells of the lines of a table."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]


def test_each_classifier_of_texts_has_a_table_of_its_own(tables: Any, tmp_path: Path) -> None:
    write_text_records(tmp_path, {"pnml": (80.0, 90.0)})
    expected = dict.fromkeys(tables.CLASSIFIERS, "85.5 ± 0.7") | {"text-fine-tuned": "60.0 ± 7.1"}
    for name, mean in expected.items():
        text = tables.block(tmp_path, name)
        assert f"2 classifiers, 2 {'training sets' if name == 'clinc150' else 'seeds'}; test accuracy" in text
        assert "by set" not in text
        (line,) = (line for line in cells(text) if line[0] == "pnml" and len(line) == len(tables.COLUMNS))
        assert line[4] == mean


def test_classifiers_that_were_not_measured_are_named_and_have_no_line(tables: Any, tmp_path: Path) -> None:
    page = import_module("studies.families.page")
    methods = dict.fromkeys(page.METHODS, (80.0, 90.0))
    write_text_records(tmp_path, methods)
    (tmp_path / "clinc150.json").write_text(json.dumps(made_record(methods, ("frozen",))), encoding="utf-8")
    assert tables.block(tmp_path, "clinc150-fine-tuned") == tables.NOT_YET
    assert [line[0] for line in cells(page.summary(tmp_path))] == [
        "Questions",
        "-" * 11,
        *["BANKING77"] * 2,
        "CLINC150",
    ]
    assert cells(page.intents(tmp_path))[0][-1] == "CLINC150, frozen encoder"


def test_classifiers_with_other_training_sets_have_the_near_auroc_with_each(tables: Any) -> None:
    methods = dict.fromkeys(("gen", "vim", "knn", "rmd", "react", "energy"), (60.0, 70.0)) | {"pnml": (50.0, 50.0)}
    record = made_record(methods, ("frozen",))
    record["tasks"] = dict(zip(("frozen/full", "frozen/small"), record["tasks"].values(), strict=True))
    text = tables.table(record, "clinc150")
    _, found, by_set = text.partition("Near AUROC by training set, of the first 6 and pnml:")
    assert found
    assert cells(by_set)[0] == ["Method", "full", "small"]
    assert cells(by_set)[-1] == ["pnml", "50.0", "51.0"]
    assert "training set" not in tables.table(record, "text")


def test_the_guide_about_text_has_all_classifiers_side_by_side(tables: Any, tmp_path: Path) -> None:
    page = import_module("studies.families.page")
    write_text_records(tmp_path, dict.fromkeys(page.METHODS, (80.0, 90.0)))
    lines = cells(page.intents(tmp_path))
    assert lines[0][1:4] == ["BANKING77, frozen encoder", "BANKING77, fine-tuned", "CLINC150, frozen encoder"]
    assert lines[2][:4] == ["`pnml`", "80.5 ± 0.7", "50.0 ± 14.1", "80.5 ± 0.7"]
    assert len(lines) == 2 + len(page.METHODS)


def test_the_summary_of_texts_has_the_place_and_the_lead_over_the_best_other(tables: Any, tmp_path: Path) -> None:
    page = import_module("studies.families.page")
    write_text_records(
        tmp_path, {"pnml": (80.0, 90.0), "pnml-last": (79.0, 90.0), "knn": (75.0, 92.0), "dice": (99.0, 99.0)}
    )
    lines = cells(page.summary(tmp_path))[2:]
    assert [line[:2] for line in lines] == [list(page.NAMES[name]) for name in tables.CLASSIFIERS]
    first = ["85.5", "1", "+1.50 ± 0.00 (knn)", "80.5", "1", "+5.00 ± 0.00 (knn)"]
    assert all(line[2:] == first for line in (lines[0], *lines[2:]))
    # behind by 18.5 and 29.5 in the mean, by 15 and 36 on near sets; pnml-last is counted in the place alone
    assert lines[1][2:] == ["60.0", "3", "−24.00 ± 5.50 (knn)", "50.0", "3", "−25.50 ± 10.50 (knn)"]


def test_the_pages_are_those_of_the_records(tables: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = ROOT
    written = {name: (root / "docs" / name).read_text(encoding="utf-8") for name in tables.PAGES}
    for name, text in written.items():
        (tmp_path / name).write_text(text.replace("| pnml ", "| else "), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["tables", "--pages", str(tmp_path)])
    tables.main()
    for name, text in written.items():
        assert (tmp_path / name).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", ["text-fine-tuned", "clinc150"])
def test_the_differences_in_the_words_about_text_are_of_the_record(tables: Any, name: str) -> None:
    root = ROOT
    page = (root / "docs" / "text-ood.md").read_text(encoding="utf-8")
    words = " ".join(page.partition(f"<!-- end of {name} -->")[2].partition("\n## ")[0].split())
    aurocs = [task["auroc"] for task in tables.text_tasks(root / "studies" / "families", name)["tasks"].values()]
    for method, kind in WORDS[name]:
        sets = [[list(task[one].values()) for task in aurocs] for one in (method, "pnml")]
        behind = np.subtract(*np.array(sets))  # (repeats, near and far)
        differences = behind[:, 0] if kind == "near" else behind.mean(axis=1)
        error = differences.std(ddof=1) / len(differences) ** 0.5
        assert f"{abs(differences.mean()):.2f} ± {error:.2f} points" in words, (method, kind)


WORDS = {
    "text-fine-tuned": (("mahalanobis-plus", "mean"), ("mahalanobis-plus", "near")),
    "clinc150": (
        *(("rmd", "mean"), ("pnml-paper", "mean")),
        *(("pnml-paper", "near"), ("fdbd", "near"), ("rmd", "near")),
    ),
}
"""Differences between ``pnml`` and other methods that the page gives in words below a table."""


def test_the_differences_in_the_words_about_photographs_are_of_the_record(tables: Any) -> None:
    root = ROOT
    page = " ".join((root / "docs" / "quality.md").read_text(encoding="utf-8").split())
    record = json.loads((root / "studies" / "families" / "imagenet.json").read_text(encoding="utf-8"))
    parts = [tables.tasks_of(record, name) for name in ("lite0", "lite1", "lite2", "resnet50")]

    def values(method: str) -> Any:
        return np.array([tables.mean(part, method, "auroc", ("near", "far")).value for part in parts])

    for method, words in (("mahalanobis-layers", "`pnml` leads `mahalanobis-layers` by"), ("vim", "ViM by")):
        leads = values("pnml") - values(method)
        points = " points" if method == "mahalanobis-layers" else ""
        assert f"{words} {leads.mean():.1f} ± {leads.std(ddof=1) / 2:.1f}{points}" in page
    behind = values("mahalanobis-layers") - values("pnml")
    assert "{:.1f}, {:.1f} and {:.1f} points ahead of it, but {:.1f} behind".format(*behind[:3], -behind[3]) in page
    free = [method for method in record["tasks"]["lite0/0"]["auroc"] if tables.needs_no_ood_data(method)]
    aurocs = np.array([values(method) for method in free])
    places = (aurocs > values("pnml")).sum(axis=0) + 1
    assert places.tolist() == [5, 2, 5, 4]
    assert "`pnml` is fifth, second, fifth and fourth" in page
    gaps = aurocs.max(axis=0) - values("pnml")
    assert f"{gaps.min():.1f} to {gaps.max():.1f} points ahead" in page


@pytest.mark.parametrize(
    ("family", "data"), [("imagenet", "[Photographs]"), ("tabular", "[Tables of numbers]"), ("audio", "[Sound]")]
)
def test_the_summary_of_families_is_of_the_records(tables: Any, family: str, data: str) -> None:
    root = ROOT
    page = (root / "docs" / "quality.md").read_text(encoding="utf-8")
    (line,) = (line for line in cells(page) if line[0].startswith(data))
    record = tables.read(root / "studies" / "families", family)
    first = next(iter(record["tasks"].values()))["auroc"]
    means = {
        method: found.value
        for method in first
        if tables.needs_no_ood_data(method) and (found := tables.mean(record, method, "auroc", ("near", "far")))
    }
    others = {method: value for method, value in means.items() if not method.startswith("pnml")}
    best = max(others, key=others.__getitem__)
    place = 1 + sum(value > means["pnml"] for value in means.values())
    assert line[2:] == [f"{means['pnml']:.1f}", str(place), f"{others[best]:.1f} ({best})"]
