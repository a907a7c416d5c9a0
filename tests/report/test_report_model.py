"""Test what a report refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pnml.core.calibration import calibrate
from pnml.report import ScoredSet

from .factories import comparison, numbered_images, scored


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"role": "inside"}, "the role of 'new' is 'inside': expected one of in, out, unlabelled"),
        ({"regret": []}, r"has shape \(0,\): expected \(n,\)"),
        ({"regret": [[0.1]]}, r"has shape \(1, 1\)"),
        ({"regret": [0.1, np.nan]}, "row 1 of 'new' has a regret of nan"),
        ({"regret": [0.1, -0.5]}, "row 1 of 'new' has a regret of -0.5: expected a finite number of 0 nats or more"),
        ({"probability": [np.inf, 1.0]}, "row 0 of 'new' has a probability of inf"),
        ({"p_value": [0.5, 1.5]}, "row 1 of 'new' has a p-value of 1.5: expected a number from 0 to 1"),
        ({"p_value": [np.nan, 0.5]}, "row 0 of 'new' has a p-value of nan"),
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
        ({"threshold": 0.5, "calibration": calibrate(np.arange(99) / 99)}, r"is 0\.5 and the calibration sets 0\.9\d+"),
        ({"spectrum": [0.5, 1.0]}, "descending, the first above 0"),
        ({"spectrum": [0.0, 0.0]}, "descending, the first above 0"),
        ({"spectrum": []}, "descending, the first above 0"),
        ({"spectrum": [[1.0]]}, "descending, the first above 0"),
    ],
)
def test_invalid_report_raises(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        comparison(**wrong)
