"""The numbers of ``studies/digits/run.py``, for the pages."""

from __future__ import annotations

import json
from pathlib import Path

from pnml_bench.layout import markdown_table

Spread = dict[str, float]

SCALES = {
    "auto": '`embedding_scale="auto"`, the default ([why](../quality.md#near-ood))',
    "paper": '`embedding_scale="paper"`, norm 1, reproduces the paper',
}
WAYS = {
    "fresh digits, held-out calibration": "200 held-out digits",
    "fresh digits, leave-one-out calibration": "the training set, leave-one-out",
    "fresh digits, training set taken for fresh": "the training set as if it were fresh (do not)",
}


def flagged() -> str:
    """Return which shares of unknown digits and of noise are flagged."""
    lines = [("flagged, mean of 20 trainings (lowest to highest)", "8 and 9", "noise")]
    for scale, words in SCALES.items():
        found = _trainings()[scale]
        lines.append((words, _share(found["digits 8 and 9"], 0), _share(found["noise"], 0)))
    return markdown_table(lines)


def calibrated() -> str:
    """Return which shares of fresh digits are flagged, by what the threshold was calibrated on."""
    found = _trainings()["auto"]
    lines = [("calibrated on (20 trainings, rate 5%)", "fresh digits flagged: mean (lowest to highest)")]
    lines += [(words, _share(found[name], 1)) for name, words in WAYS.items()]
    return markdown_table(lines)


def _trainings() -> dict[str, dict[str, Spread]]:
    record = json.loads(Path(__file__).with_name("record.json").read_text(encoding="utf-8"))
    trainings: dict[str, dict[str, Spread]] = record["trainings"]
    return trainings


def _share(spread: Spread, digits: int) -> str:
    mean, low, high = (f"{spread[name]:.{digits}f}%" for name in ("mean", "lowest", "highest"))
    return mean if low == high else f"{mean} ({low} to {high})"
