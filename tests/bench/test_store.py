"""The folder of results: what is written is read back, and a table that is cut off or damaged is handled."""

from __future__ import annotations

import csv
import json
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnml.metrics import Metrics
from pnml_bench.results import STAGES, Result, Run, Scores
from pnml_bench.store import COLUMNS, ResultStore

if TYPE_CHECKING:
    from pathlib import Path

METRICS = Metrics(98.4, 91.5, 94.0, 97.25, 99.0, 7.5)
CELL = Result(
    model="densenet-bc-100",
    ind="cifar10",
    ood="tinyimagenet_crop",
    method="baseline",
    checkpoint="densenet-bc-100_cifar10",
    scores=Scores(METRICS, plus_pnml=replace(METRICS, auroc=99.5)),
    counts={"train": 50_000, "ind": 10_000, "ood": 10_000},
    seeds=(0, 1, 2),
    accuracy=95.19,
    rank=342,
    memory_bytes=28_161_024,
    memory_device="cuda",
    settings={"limit": None, "method": [{"epsilon": 0.0014}]},
    seconds={"train_embedding": 2.5, "score": 1.2e-05},
    date="2024-05-17T12:10:00+00:00",
    run=Run(
        command="pnml bench --model {model} --ind {ind} --ood {ood} --method {method} --device cpu",
        commit="0123abc",
        dirty=False,
        device="cpu: a CPU",
        versions={"python": "3.11.7"},
        date="2024-05-17T12:00:00+00:00",
    ),
)
ABSENT = Result(model="resnet-34", ind="svhn", ood="lsun_crop", method="odin", reason="data absent: LSUN")

percent = st.floats(0, 100)
metrics = st.builds(Metrics, percent, percent, percent, percent, percent, percent)
name = st.sampled_from(["a", "cifar10", "lsun_crop", "densenet-bc-100", "v1.5"])
json_values = st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.floats(-1, 1), max_size=3)
runs = st.builds(
    Run,
    command=st.text(max_size=20),
    commit=st.none() | st.text(max_size=20),
    dirty=st.none() | st.booleans(),
    device=st.text(max_size=9),
    versions=st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=2),
)
results = st.builds(
    Result,
    study=name,
    model=name,
    ind=name,
    ood=name,
    method=name,
    scores=st.builds(Scores, metrics, st.none() | metrics),
    counts=st.dictionaries(st.sampled_from(["train", "ind", "ood"]), st.integers(0)),
    seeds=st.lists(st.integers(0, 2**32), max_size=3).map(tuple),
    accuracy=st.none() | percent,
    rank=st.none() | st.integers(0),
    memory_bytes=st.none() | st.integers(0),
    settings=st.dictionaries(st.text(max_size=9).filter(lambda name: name != "notes"), json_values, max_size=3),
    seconds=st.dictionaries(st.sampled_from(STAGES), st.floats(0, 1e9)),
    run=runs,
)


@settings(deadline=None, max_examples=50)
@given(results)
def test_a_result_is_read_back_exactly(result: Result) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ResultStore(folder).append(result)
        assert ResultStore(folder).load() == [result]


def test_rows_of_one_run_share_its_line_and_the_later_row_of_a_cell_counts(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "new" / "results")
    forced = replace(CELL, scores=Scores(METRICS), date="2024-05-18T12:00:00+00:00")
    oracle = replace(CELL, study="paper-oracle")
    for result in (CELL, ABSENT, oracle, forced):
        store.append(result)
    assert ResultStore(store.folder).load() == [forced, ABSENT, oracle]
    assert len(store.cells.read_text().splitlines()) == 5
    for file in ("runs.jsonl", "settings.jsonl"):
        assert len((store.folder / file).read_text().splitlines()) == 1


def test_the_table_is_plain_csv_with_one_column_a_number(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.append(CELL)
    store.append(ABSENT)
    with store.cells.open() as file:
        cell, absent = csv.DictReader(file)
    assert tuple(cell) == COLUMNS
    assert (cell["auroc"], cell["auroc_with_pnml"], cell["seconds_score"]) == ("98.4", "99.5", "1.2e-05")
    assert (cell["seeds"], cell["n_train"], cell["reason"]) == ("0 1 2", "50000", "")
    assert (absent["auroc"], absent["run"], absent["reason"]) == ("", "", "data absent: LSUN")
    run = json.loads((tmp_path / "runs.jsonl").read_text())
    assert (run["run"], run["commit"], run["dirty"]) == (cell["run"], "0123abc", False)
    values = json.loads((tmp_path / "settings.jsonl").read_text())
    assert values == {"settings": cell["settings"], "values": CELL.settings}


@pytest.mark.parametrize("name", ["cells.csv", "runs.jsonl", "settings.jsonl"])
def test_a_line_that_was_cut_off_is_ignored_and_replaced(tmp_path: Path, name: str) -> None:
    ResultStore(tmp_path).append(ABSENT)
    path = tmp_path / name
    start = path.stat().st_size if path.exists() else 0
    ResultStore(tmp_path).append(CELL)
    whole = path.read_bytes()
    for end in (start, start + 1, (start + len(whole)) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        if name == "cells.csv":
            assert ResultStore(tmp_path).load() == [ABSENT]
        ResultStore(tmp_path).append(CELL)
        assert path.read_bytes() == whole
    assert ResultStore(tmp_path).load() == [CELL, ABSENT]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("study,model", "study,colour", "has the columns study, colour"),
        ("98.4", "high", "row 2: could not convert string to float: 'high'"),
        ("98.4", "101", "row 2: auroc is 101"),
        (",98.4,", ",", "row 2: zip"),
        ("cifar10,", "CIFAR,", "row 2: ind is 'CIFAR'"),
        ("20240517", "20250517", "row 2: no line '20250517"),
        (",\n", ",lost\n", "scores of a run, or the reason"),
    ],
)
def test_damaged_tables_are_refused_with_the_row(tmp_path: Path, old: str, new: str, message: str) -> None:
    store = ResultStore(tmp_path)
    store.append(CELL)
    text = store.cells.read_text()
    assert old in text
    store.cells.write_text(text.replace(old, new, 1))
    with pytest.raises(ValueError, match=message) as caught:
        store.load()
    assert str(store.cells) in str(caught.value)


@pytest.mark.parametrize("wrong", ["", "../up", "two__parts", "Upper", "a b", "_a", "a/b"])
def test_names_that_make_no_file_name_are_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"ood is .*lower-case"):
        replace(ABSENT, ood=wrong)
    with pytest.raises(ValueError, match=r"study is .*lower-case"):
        replace(ABSENT, study=wrong)


def test_scores_and_reason_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="scores of a run, or the reason"):
        replace(CELL, reason="but it was")
    for reason in (None, ""):
        with pytest.raises(ValueError, match="scores of a run, or the reason"):
            replace(CELL, scores=None, reason=reason)
