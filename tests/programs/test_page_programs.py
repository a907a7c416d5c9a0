"""What the programs of the pages say about made-up results."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pnml.metrics import evaluate
from pnml_bench.results import Result, Scores

if TYPE_CHECKING:
    from pathlib import Path

page_paper = importlib.import_module("studies.paper.page")
page_boards = importlib.import_module("studies.boards")

CELL = {"model": "densenet-bc-100", "ind": "cifar10", "ood": "svhn"}


def result(
    method: str, tnr: float, tnr_with_pnml: float | None, study: str = "paper", model: str = "densenet-bc-100"
) -> Result:
    """Return a result with the paper's AUROC of CIFAR-10 against SVHN by Baseline, and some TNR."""
    metrics = replace(evaluate([1, 2], [3, 4]), auroc=89.9, detection_accuracy=83.8)
    plus = (
        None
        if tnr_with_pnml is None
        else replace(metrics, auroc=98.4, detection_accuracy=93.9, tnr_at_tpr95=tnr_with_pnml)
    )
    scores = Scores(replace(metrics, tnr_at_tpr95=tnr), plus)
    return Result(model=model, ind="cifar10", ood="svhn", method=method, study=study, scores=scores)


def experiment(name: str, with_change: float) -> dict[str, object]:
    numbers = {"paper": 92.2, "ours": 95.0, "with_change": with_change}
    return {"experiment": name, **CELL, "method": "baseline", "metric": "tnr_at_tpr95", **numbers}


@pytest.mark.parametrize(
    ("published", "tried", "cause"),
    [
        (None, [], "not known"),
        (92.1, [], "the published arithmetic"),
        (94.9, [("eigenvalue cut: 1e-08", 92.3), ("eigenvalue cut: 1e-09", 93.0)], "eigenvalue cut: 1e-08"),
        (None, [("digits one pixel down and right", 94.0)], "not known"),
    ],
)
def test_a_large_difference_gets_its_experiment_or_is_not_known(
    published: float | None, tried: list[tuple[str, float]], cause: str, tmp_path: Path
) -> None:
    """The paper has 40.4 / 92.2; only numbers farther than two points are listed."""
    entries = [experiment(*one) for one in tried]
    (tmp_path / "differences_cifar10.json").write_text(json.dumps({"cells": entries}), encoding="utf-8")
    results = [result("baseline", 40.0, 95.0)]
    if published is not None:
        results.append(result("baseline", 40.0, published, study="paper-published"))
    found = page_paper.differences(results, tmp_path)
    assert [(one.kind, one.paper, one.ours, one.cause) for one in found] == [("with pNML", 92.2, 95.0, cause)]
    page = page_paper.all_differences(results, tmp_path)
    assert "All 1 numbers" in page
    assert cause in page
    assert f"| 1       | {cause}" in page_paper.summary_of_differences(results, tmp_path)


def test_boards_have_the_best_peers_and_means_with_errors() -> None:
    def board(ind: str, **aurocs: float) -> list[Result]:
        some = evaluate([1, 2], [3, 4])
        return [
            Result(
                model="resnet-34",
                ind=ind,
                ood=ood,
                method=method.replace("_", "-"),
                study=page_boards.STUDY,
                accuracy=95.0,
                scores=Scores(replace(some, auroc=auroc)),
            )
            for method, auroc in aurocs.items()
            for ood in ("uniform", "gaussian")
        ]

    common = {"pnml_last": 80.0, "pnml_paper": 70.0, "baseline": 60.0, "energy": 65.0}
    results = board("cifar10", pnml=90.0, knn=85.0, vim=86.0, knn_layers=88.0, **common)
    results += board("svhn", pnml=80.0, knn=81.0, vim=79.0, knn_layers=78.0, **common)
    text = page_boards.table(results)
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines()]
    assert rows[2][3:6] == ["**90.0**", "86.0 (vim)", "88.0 (knn-layers)"]
    assert rows[3][3:6] == ["80.0", "**81.0 (knn)**", "78.0 (knn-layers)"]
    assert rows[4][3:7] == ["85.0 ± 5.0", "83.5 ± 2.5", "83.0 ± 5.0", "60.0 ± 0.0"]
    said = " ".join(page_boards.words(results).split())
    assert "embeddings alone on 1 of 2 networks; it is 1.5 ± 2.5 points above it" in said
    assert "same layers on 2, and is 2.0 ± 0.0 points above it" in said
    assert page_boards.table([]) == page_boards.words([]) == page_boards.NOT_YET
