"""Reports of random scores, with images that contain the number of their sample, and monitors of random streams."""

from __future__ import annotations

import json
import re
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from pnml import Monitor
from pnml.core.calibration import calibrate
from pnml.report import Report, ScoredSet, Table

CLASSES = ("ant", "bee <b>", "cat")
LAYERS = ("stem <b>", "block1.conv", "block2.conv", "block3.conv")
NASTY = """<script>alert("x")</script> & 'quotes' </title> {{ 7 * 7 }}"""
QUIET, CHANGED = 1000, 500
"""How many samples of a stream come before the change, and after."""


def numbered_images(count: int, side: int = 8) -> np.ndarray[Any, Any]:
    """Return images whose first pixel is the number of the sample."""
    images = np.full((count, side, side, 3), 127, dtype=np.uint8)
    images[:, 0, 0, 0] = np.arange(count) % 256
    return images


def scored(name: str, role: Any, centre: float, count: int, seed: int, **columns: Any) -> ScoredSet:
    rng = np.random.default_rng(seed)
    probability = rng.uniform(0.3, 1, count)
    contents = {
        "regret": np.exp(rng.normal(centre, 0.7, count)),
        "prediction": rng.integers(0, 4, count),
        "probability": probability,
        "baseline": 1 - probability,
        "images": numbered_images(count),
    }
    return ScoredSet(name=name, role=role, **{**contents, **columns})


def comparison(**contents: Any) -> Report:
    """Return a report of an in-distribution set and two OOD sets, with names that must be escaped."""
    known = scored("known", "in", -3, 500, 0, labels=np.random.default_rng(9).integers(0, 3, 500))
    table = Table(title="More", columns=("Set", ("AUROC", "a"), ("AUROC", "b")), rows=((NASTY, 99.96, 100.0),))
    defaults = {
        "title": f"A report {NASTY}",
        "facts": {"Network": NASTY, "Command": "pnml demo"},
        "sets": (known, scored("far", "out", -0.5, 301, 1), scored(f"near {NASTY}", "out", -2.2, 77, 2)),
        "class_names": CLASSES,
        "spectrum": np.append(np.geomspace(1, 1e-9, 60), np.zeros(4)),
        "tables": (table,),
    }
    return Report(**{**defaults, **contents})


def unlabelled(**contents: Any) -> Report:
    """Return a report of one unlabelled set."""
    return Report(**{"title": "New", "facts": {}, "sets": (scored("new", "unlabelled", -1, 90, 3),), **contents})


def layered(names: tuple[str, ...] = (*LAYERS, "lengths")) -> Report:
    """Return a report of a known set, of noise that the first layer gives away, and of a set without all shares."""
    rng = np.random.default_rng(5)

    def leverage(count: int, column: int) -> dict[str, np.ndarray[Any, Any]]:
        shares = rng.exponential(size=(count, 1 + len(names)))
        shares[:, 1:] *= rng.integers(0, 2, size=(count, len(names)))  # silent layers
        shares[:, column] *= 5
        return {"leverage": shares, "strangest": shares.argmax(axis=1)}

    sets = (
        scored("known", "in", -3, 200, 0, **leverage(200, 0)),
        scored("noise", "out", -0.5, 90, 1, **leverage(90, 1)),
        scored("near", "out", -1, 70, 2, strangest=rng.integers(0, 1 + len(names), 70)),
    )
    return Report(title="Layers", facts={}, sets=sets, layer_names=names)


def calibrated() -> Report:
    """Return a report of a known, a strange and an unlabelled set with ids and layers, and of a calibration."""
    rng = np.random.default_rng(6)

    def named(name: str, role: Any, centre: float, count: int, seed: int) -> ScoredSet:
        columns = {
            "ids": [f"{name}-{number}.png" for number in range(count)],
            "prediction": np.random.default_rng(seed).integers(0, 3, count),
            "strangest": rng.integers(0, 5, count),
        }
        return scored(name, role, centre, count, seed, **columns)

    return Report(
        title="Calibrated",
        facts={},
        sets=(
            named("known", "in", -3, 200, 0),
            named("strange", "out", -1.5, 90, 1),
            named("new", "unlabelled", -2, 70, 2),
        ),
        class_names=("ant", "bee", "cat"),
        layer_names=LAYERS,
        calibration=calibrate(np.exp(rng.normal(-3, 0.7, 400)), predictions=rng.integers(0, 3, 400)),
    )


@cache
def changed() -> Monitor:
    """Return the monitor of a stream in which class 1 becomes strange, and the first layer gives it away."""
    rng = np.random.default_rng(0)
    threshold = calibrate(rng.gamma(2, 0.1, 400), predictions=rng.integers(0, 3, 400), n_classes=3)
    monitor = Monitor(SimpleNamespace(threshold=threshold, watched_names=LAYERS))
    count = QUIET + CHANGED
    regret, prediction, strangest = rng.gamma(2, 0.1, count), rng.integers(0, 3, count), rng.integers(0, 5, count)
    is_strange = (np.arange(count) >= QUIET) & (prediction == 1)
    monitor.update(np.where(is_strange, 4 * regret, regret), prediction, np.where(is_strange, 1, strangest))
    return monitor


@cache
def quiet() -> Monitor:
    """Return the monitor of a short stream without a change, of which only regrets are known."""
    rng = np.random.default_rng(1)
    monitor = Monitor(calibrate(rng.gamma(2, 0.1, 400)))
    monitor.update(rng.gamma(2, 0.1, 77))
    return monitor


def page_data_of(page: str) -> Any:
    """Return the data of the page's script."""
    (data,) = re.findall(r'<script type="application/json" id="page-data">(.*?)</script>', page, re.DOTALL)
    return json.loads(data)
