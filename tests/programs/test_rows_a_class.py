"""Test which rows are fitted on when there are few or many of a class, on made-up rows."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    return import_module("studies.families.rows_a_class")


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    return import_module("studies.families.rows_table")


def test_a_fold_fits_on_the_pictures_after_the_tested_one(program: Any) -> None:
    labels = np.repeat([0, 1, 2], [3, 4, 3])
    train, test = program.following(labels, 1, 2)
    assert test.tolist() == [1, 4, 8]
    assert train.tolist() == [0, 2, 5, 6, 7, 9]


def test_drawn_rows_are_as_many_of_each_class_and_contain_the_fewer(program: Any) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(7), 20))
    few, many, others = program.drawn(labels, 4, 1), program.drawn(labels, 16, 1), program.drawn(labels, 4, 2)
    assert np.bincount(labels[few]).tolist() == [4] * 7
    assert np.bincount(labels[many]).tolist() == [16] * 7
    assert set(few) < set(many)
    assert set(few) != set(others)
    assert program.drawn(labels, 20, 1).tolist() == list(range(140))


def test_a_folder_without_data_says_what_it_lacks(program: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"neither a folder val nor one of resnet9_cifar100_0\.safetensors"):
        program.tasks(tmp_path)
    (tmp_path / "mobile_cifar100_0.safetensors").touch()
    assert len(program.tasks(tmp_path)) == 4 * 3 + 1
    (tmp_path / "val").mkdir()
    assert list(program.tasks(tmp_path))[:2] == ["lite0/1/0", "lite0/1/1"]


def made_record(leads: dict[str, list[float]], *, network: str = "lite0") -> dict[str, Any]:
    """Return a record in which pnml has 90 and is ahead of "gen" by so much: by "ROWS", for each fold or network."""

    def task(lead: float) -> dict[str, Any]:
        sets = {"near: a": 80.0, "far: b": 99.0, "far: c": 101.0}
        return {"auroc": {"pnml": sets, "gen": {name: value - lead for name, value in sets.items()}}}

    names = {"lite0": "lite0/{0}/{1}", "small": "net{1}/{0}/0"}
    return {
        "tasks": {
            names[network].format(count, number): task(lead)
            for count, of_count in leads.items()
            for number, lead in enumerate(of_count)
        }
    }


@pytest.mark.parametrize(
    ("network", "leads", "says"),
    [
        ("lite0", {"1": [9.0, 9.0], "2": [-3.0, -2.0], "3": [-2.0, -1.2], "4": [-1.0, 0.1]}, "yes"),
        ("lite0", {"2": [-3.0, -2.0], "3": [-3.1, -2.0], "4": [-1.0, 0.1]}, "no"),  # falls in between
        ("lite0", {"2": [-3.0, -2.0], "3": [-3.0, -1.9], "4": [-3.0, 1.0]}, "no"),  # within two standard errors
        ("lite0", {"2": [3.0, 2.0], "3": [1.0, 1.0], "4": [1.0, 0.1]}, "against"),
        ("small", {"4": [-3.0, -2.0], "8": [-4.0, -4.0], "500": [1.0, 2.0]}, "yes"),
        ("small", {"4": [-3.0, -2.0], "500": [-1.0, 0.0]}, "no"),  # still behind
        ("small", {"4": [1.0, 2.0], "500": [3.0, 4.1]}, "no"),  # never behind
        ("small", {"4": [1.0, 2.0], "500": [-3.0, -2.2]}, "against"),
    ],
)
def test_the_verdict_is_that_of_the_plan(tables: Any, network: str, leads: dict[str, list[float]], says: str) -> None:
    text = tables.side(made_record(leads, network=network), photographs=network == "lite0")
    head, _, line, own = ([cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines())
    assert head[1 : 1 + len(leads)] == list(leads)
    assert (line[0], line[-1]) == ("gen", says)
    assert own[1 : 1 + len(leads)] == ["90.0"] * len(leads)


def test_a_lead_has_its_standard_error_over_networks_and_the_mean_of_their_draws(tables: Any) -> None:
    record = made_record({"4": [-1.0, -2.0, -6.0], "500": [1.0, 2.0, 3.0]}, network="small")
    record["tasks"]["net0/4/1"] = made_record({"4": [-3.0]})["tasks"]["lite0/4/0"]  # so that net0 is -2 on average
    line = tables.side(record, photographs=False).splitlines()[2]
    error = np.std([-2.0, -2.0, -6.0], ddof=1) / np.sqrt(3)
    assert f"−3.3 ± {error:.1f}" in line
    rise = np.std([3.0, 4.0, 9.0], ddof=1) / np.sqrt(3)
    assert f"+5.3 ± {rise:.1f}" in line
