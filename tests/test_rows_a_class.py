"""Test which rows are fitted on when there are few or many of a class, on made-up rows."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("rows_a_class")


def test_a_fold_fits_on_the_pictures_after_the_tested_one(program: Any) -> None:
    labels = np.repeat([0, 1, 2], [3, 4, 3])
    train, test = program.following(labels, 1, 2)
    assert test.tolist() == [1, 4, 8]
    assert train.tolist() == [0, 2, 5, 6, 7, 9]


def test_all_but_one_picture_are_the_rows_of_the_published_table(program: Any) -> None:
    labels = np.repeat(np.arange(6), 5)
    for fold in range(5):
        train, test = program.following(labels, fold, 4)
        assert test.tolist() == [5 * number + fold for number in range(6)]
        assert train.tolist() == [row for row in range(30) if row % 5 != fold]


def test_too_few_pictures_are_an_error(program: Any) -> None:
    with pytest.raises(ValueError, match="expected more than 3 rows of each class, got 3 of one"):
        program.following(np.repeat([0, 1], [3, 5]), 0, 3)


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
    assert len(program.tasks(tmp_path)) == 4 * 3 + 2
    (tmp_path / "val").mkdir()
    assert list(program.tasks(tmp_path))[:2] == ["lite0/1/0", "lite0/1/1"]
