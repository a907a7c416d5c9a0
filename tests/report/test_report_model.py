from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pnml.report import Report, ScoredSet, Table

from .factories import comparison, numbered_images, scored


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"role": "inside"}, "the role of 'new' is 'inside': expected one of in, out, unlabelled"),
        ({"regret": []}, r"has shape \(0,\): expected shape \(n,\)"),
        ({"regret": [[0.1]]}, r"has shape \(1, 1\)"),
        ({"regret": [0.1, np.nan]}, "row 1 of 'new' has a regret of nan"),
        ({"regret": [0.1, -0.5]}, "has a regret of -0.5: expected 0 nats or more"),
        ({"probability": [np.inf, 1.0]}, "row 0 of 'new' has a probability of inf"),
        ({"prediction": [1]}, "has 2 regrets but 1 entries in 'prediction'"),
        ({"ids": ["a", "b", "c"]}, "has 2 regrets but 3 entries in 'ids'"),
        ({"images": numbered_images(3)}, r"are uint8 \(3, 8, 8, 3\): expected uint8 \(2, H, W, 3\)"),
        ({"images": np.zeros((2, 8, 8, 3))}, "are float64"),
        ({"images": ["a.png"]}, "has 2 regrets but 1 paths of images"),
    ],
)
def test_invalid_scored_set_raises(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ScoredSet(**{"name": "new", "role": "unlabelled", "regret": [0.1, 0.2], **wrong})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sets": (), "tables": ()}, "at least one scored set or table"),
        ({"sets": (scored("a", "out", 0, 3, 0), scored("a", "in", 0, 3, 0))}, "two sets are named 'a'"),
        ({"sets": (scored("a", "in", 0, 3, 0), scored("b", "in", 0, 3, 0))}, "two sets have the role 'in'"),
        ({"threshold": -1.0}, "the threshold is -1.0"),
        ({"threshold": np.inf}, "the threshold is inf"),
        ({"spectrum": [0.5, 1.0]}, "descending, the first above 0"),
        ({"spectrum": [0.0, 0.0]}, "descending, the first above 0"),
        ({"spectrum": []}, "descending, the first above 0"),
        ({"spectrum": [[1.0]]}, "descending, the first above 0"),
    ],
)
def test_invalid_report_raises(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        comparison(**wrong)


def test_table_with_short_row_raises() -> None:
    with pytest.raises(ValueError, match="row 1 of table 'T' has 1 entries: expected 2"):
        Table(title="T", columns=("a", "b"), rows=(("x", 1.0), ("y",)))


def test_report_returns_sets_by_role() -> None:
    report = Report(
        title="",
        facts={},
        sets=tuple(scored(role, role, 0, 3, 0) for role in ("out", "in", "unlabelled")),
    )
    assert report.ind_set is report.sets[1]
    assert [one.name for one in report.other_sets] == ["out", "unlabelled"]
    assert [one.name for one in report.ood_sets] == ["out"]
