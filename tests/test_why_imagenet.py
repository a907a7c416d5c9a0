"""Test the scores with one part changed against explicit computation, and the table of what each change does."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pnml import Detector
from pnml.core import scatter

ROOT = Path(__file__).parents[1]
CLASSES, WIDTH, LAYERS = 3, 5, (4, 6)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("why_imagenet")


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("family_why")


@pytest.fixture
def views(program: Any) -> tuple[Any, Any]:
    """Views of 90 training rows and 40 others, wider spread, of a last layer with two earlier ones."""
    family = import_module("family")
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = family.Head(nn.Linear(WIDTH, CLASSES)).eval()

    def view(count: int, spread: float) -> Any:
        labels = np.arange(count) % CLASSES
        middles = torch.from_numpy(labels)[:, None] - 1.0
        rows = [middles + spread * torch.randn(count, width, generator=generator) for width in (WIDTH, *LAYERS)]
        return family.Stored(network, family.Part(rows[0], rows[1:], labels), ("first", "second"))

    return view(90, 0.7), view(40, 1.2)


def scored(program: Any, views: tuple[Any, Any], name: str) -> np.ndarray[Any, Any]:
    train, test = views
    found: np.ndarray[Any, Any] = program.Changed(program.SCORES[name]).fit(train).score(test).numpy()
    return found


def detector_of(views: tuple[Any, Any], **options: Any) -> Detector:
    train, _ = views
    head = train.network.head
    detector = Detector(head.weight.detach(), head.bias.detach())
    return detector.fit(train.embeddings, features=train.features(train.layers), **options)


def regret_of(detector: Detector, view: Any) -> np.ndarray[Any, Any]:
    rows, features = view.embeddings.double(), [layer.double() for layer in view.features(view.layers)]
    found: np.ndarray[Any, Any] = detector.score(rows, features=features).numpy()
    return found


def test_the_parts_of_pnml_together_are_pnml(program: Any, views: tuple[Any, Any]) -> None:
    np.testing.assert_allclose(scored(program, views, "pnml"), regret_of(detector_of(views), views[1]), rtol=1e-9)


def test_every_change_is_a_change(program: Any, views: tuple[Any, Any]) -> None:
    ours = scored(program, views, "pnml")
    for name in program.SCORES.keys() - {"pnml"}:
        assert not np.allclose(scored(program, views, name), ours, rtol=1e-6), name


def test_labels_take_the_place_of_predictions(program: Any, views: tuple[Any, Any]) -> None:
    expected = regret_of(detector_of(views, labels=views[0].images.labels), views[1])
    np.testing.assert_allclose(scored(program, views, "labels"), expected, rtol=1e-9)


@pytest.mark.parametrize(("name", "prior_rows"), [("no-ridge", 1.0), ("no-prior-row", 0.01)])
def test_scatters_are_fitted_as_the_change_says(
    program: Any, views: tuple[Any, Any], name: str, prior_rows: float
) -> None:
    train, _ = views
    geometry = program.fitted(train, program.SCORES[name].fit).geometry
    x = torch.nn.functional.normalize(train.embeddings.double(), dim=1).numpy()
    classes = train.logits.argmax(dim=1).numpy()
    rows = [x[classes == number] for number in range(CLASSES)]
    means = [(part.sum(axis=0) + prior_rows * x.mean(axis=0)) / (len(part) + prior_rows) for part in rows]
    np.testing.assert_allclose(geometry.scatters[0].means, means, rtol=1e-6)
    lowest = scatter.FEATURE_NOISE**2 * len(x)
    assert (geometry.scatters[0].ridge == pytest.approx(lowest, rel=1e-6)) is (name == "no-ridge")
    assert scatter.PRIOR_ROWS == 1.0


def test_what_leverage_is_left_without_ratio_layers_and_doubt(program: Any, views: tuple[Any, Any]) -> None:
    train, test = views
    parts = program.Parts(mean="nearest", ratio=False, layers="nothing", doubt="nothing")
    found = program.Changed(parts).fit(train).score(test).numpy()
    geometry = detector_of(views).geometry
    assert geometry is not None
    first = geometry.scatters[0]
    within = (first.eigenvectors * (first.eigenvalues + first.ridge)) @ first.eigenvectors.T
    x = torch.nn.functional.normalize(test.embeddings.double(), dim=1).numpy()
    apart = x[:, None] - first.means
    h = np.einsum("ncm,mk,nck->nc", apart, np.linalg.inv(within), apart)
    np.testing.assert_allclose(found, 0.3 * np.sqrt(h.min(axis=1) / np.median(first.typical)), rtol=1e-6)


def test_the_doubt_is_replaced(program: Any, views: tuple[Any, Any]) -> None:
    _, test = views
    h, ours = scored(program, views, "leverage-alone"), scored(program, views, "pnml")
    logits = test.logits.double().numpy()
    energy = np.log(np.exp(logits).sum(axis=1))
    np.testing.assert_allclose(scored(program, views, "energy"), ours / np.maximum(energy, 1e-3), rtol=1e-9)
    p = 0.995 * np.exp(logits - energy[:, None]) + 0.005 / CLASSES
    t = (h / (1 + h))[:, None]
    genie = p / (p + p**t * (1 - p))
    np.testing.assert_allclose(scored(program, views, "own-probabilities"), np.log(genie.sum(axis=1)), rtol=1e-6)


def test_what_layers_add_is_replaced(program: Any, views: tuple[Any, Any]) -> None:
    train, test = views
    detector = detector_of(views)
    assert detector.geometry is not None
    parts = {layers: program.Parts(layers=layers, doubt="nothing") for layers in ("nothing", "sum")}
    found = {name: program.Changed(one).fit(train).score(test).numpy() for name, one in parts.items()}
    raw = program.leverages(detector, test, nearest=False)[:, 2:]
    medians = [np.median(one.typical) for one in detector.geometry.scatters[1:]]
    np.testing.assert_allclose(found["sum"] - found["nothing"], 0.3 * np.mean(raw / medians, axis=1), rtol=1e-9)


def test_tasks_have_4_or_100_rows_of_a_class(program: Any, tmp_path: Path) -> None:
    (tmp_path / "wrn_cifar100_0.safetensors").touch()
    assert list(program.tasks(tmp_path)) == [*(f"wrn/4/{draw}" for draw in range(3)), "wrn/100/0"]
    (tmp_path / "val").mkdir()
    assert list(program.tasks(tmp_path)) == [f"lite0/4/{fold}" for fold in range(5)]


def made_record(gains: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """Return a record in which methods gain so much, less and more in one of two folds; networks 2 or 3 times that."""

    def task(number: int, factor: int = 1) -> dict[str, Any]:
        ahead = {name: gain + (spread if number else -spread) for name, (gain, spread) in gains.items()}
        ahead |= dict.fromkeys(("mahalanobis-layers", "nnguide", "mahalanobis-plus"), 0.8)
        theirs = {name: {"near: a": 80 + 2 * factor * one, "far: b": 90.0} for name, one in ahead.items()}
        return {"auroc": {"pnml": {"near: a": 80.0, "far: b": 90.0}, **theirs}}

    small = {f"net{number}/{rows}/0": task(number, 2 if rows == 4 else 3) for number in (0, 1) for rows in (4, 100)}
    return {"tasks": {"lite0/4/0": task(0), "lite0/4/1": task(1), **small}}


@pytest.mark.parametrize(
    ("gain", "says"),
    [
        ((0.5, 0.1), "half or more"),
        ((0.3, 0.1), "less than half"),
        ((0.5, 0.3), "nothing"),
        ((-0.1, 0.1), "nothing"),
        ((-0.3, 0.1), "widens it"),
    ],
)
def test_the_verdict_is_that_of_the_plan(tables: Any, gain: tuple[float, float], says: str) -> None:
    """Two folds at ± s have the standard error s, so that 2 s is what has to be exceeded."""
    record = made_record({"some": gain})
    assert tables.gap(record) == pytest.approx(0.8)
    head, _, line, *peers = (
        [cell.strip() for cell in row.split("|")[1:-1]] for row in tables.table(record).splitlines()
    )
    value, spread = gain

    def cell(factor: int) -> str:
        return f"{'−' if factor * value < 0 else '+'}{abs(factor * value):.1f} ± {abs(factor * spread):.1f}"

    assert line == ["some", cell(2), cell(1), says, cell(6), cell(3), cell(2), cell(-1)]
    assert [row[0] for row in peers] == ["mahalanobis-layers", "nnguide", "mahalanobis-plus"]
    assert len(head) == len(line)


def test_unchanged_scores_and_peers_have_the_numbers_of_the_published_table() -> None:
    """All but ``mobile`` with 4 rows, which that table has of other draws, from 500 images of a class."""
    names = ("why-imagenet-cpu.json", "rows-a-class-cpu.json")
    here, published = (json.loads((ROOT / "results" / name).read_text(encoding="utf-8"))["tasks"] for name in names)
    for name in here.keys() - {f"mobile/4/{draw}" for draw in range(3)}:
        for method in ("pnml", "mahalanobis-layers", "nnguide", "mahalanobis-plus"):
            assert here[name]["auroc"][method] == pytest.approx(published[name]["auroc"][method], abs=0.02)
