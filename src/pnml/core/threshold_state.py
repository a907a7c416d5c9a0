"""A threshold as arrays and entries to be stored, and back, checked for what decisions depend on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.core.calibration import Threshold
from pnml.core.state_checks import (
    check_info,
    check_range,
    is_count,
    is_interval,
    is_number,
    is_share,
    is_text,
    length_of,
)

if TYPE_CHECKING:
    from pnml.core.state_checks import Arrays, Rules, Shape

SCORES, PREDICTIONS = "calibration_scores", "calibration_predictions"

_RULES: Rules = {
    "value": (is_number, "a number"),
    "false_alarm_rate": (is_share, "a number between 0 and 1"),
    "interval": (is_interval, "two numbers, ascending"),
    "confidence": (is_share, "a number between 0 and 1"),
    "source": (is_text, "text"),
    "by": (lambda value: value in (None, "prediction"), "null or prediction"),
    "n_classes": (is_count, "a whole number, not negative"),
}


def threshold_to_state(threshold: Threshold) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays of a threshold, and its other entries."""
    arrays = {SCORES: threshold.scores}
    if threshold.predictions is not None:
        arrays[PREDICTIONS] = threshold.predictions
    return arrays, {name: getattr(threshold, name) for name in _RULES}


def threshold_from_state(arrays: Arrays, info: dict[str, Any]) -> Threshold:
    """Return the threshold that :func:`threshold_to_state` was given."""
    held = dict(info, interval=tuple(info["interval"]))
    return Threshold(**held, scores=arrays[SCORES], predictions=arrays.get(PREDICTIONS))


def check_threshold_info(info: Any) -> None:
    """Raise ``ValueError`` unless these are the entries of a threshold."""
    check_info(info, _RULES, {*_RULES} - {"by", "n_classes"}, closed=True)


def expected_threshold_arrays(arrays: Arrays, info: dict[str, Any]) -> dict[str, tuple[str, Shape]]:
    """Return the dtype and the shape that each array of a threshold must have."""
    scores = length_of(arrays, SCORES, 1)
    expected: dict[str, tuple[str, Shape]] = {SCORES: ("float64", (scores,))}
    if PREDICTIONS in arrays or info.get("by") is not None:
        expected[PREDICTIONS] = "int64", (scores,)
    return expected


def check_threshold_arrays(arrays: Arrays, info: dict[str, Any]) -> None:
    """Raise ``ValueError`` unless calibration scores ascend, and predictions are classes."""
    scores = arrays[SCORES]
    if not len(scores) or (np.diff(scores) < 0).any():
        raise ValueError(f"the {len(scores)} calibration scores are not ascending, or there are none")
    if PREDICTIONS in arrays:
        check_range(arrays[PREDICTIONS], info.get("n_classes", 0), PREDICTIONS)
