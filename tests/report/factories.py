"""Reports of random scores, with images that contain the number of their sample."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from pnml.core.calibration import calibrate
from pnml.report import Report, ScoredSet, Table

CLASSES = ("ant", "bee <b>", "cat")
NASTY = """<script>alert("x")</script> & 'quotes' </title> $title"""


def numbered_images(count: int, side: int = 8) -> np.ndarray[Any, Any]:
    """Return images whose first pixel is the number of the sample."""
    images = np.full((count, side, side, 3), 127, dtype=np.uint8)
    images[:, 0, 0, 0] = np.arange(count) % 256
    return images


def scored(name: str, role: Any, centre: float, count: int, seed: int, **kwargs: Any) -> ScoredSet:
    rng = np.random.default_rng(seed)
    probability = rng.uniform(0.3, 1, count)
    return ScoredSet(
        **{
            "name": name,
            "role": role,
            "regret": np.exp(rng.normal(centre, 0.7, count)),
            "prediction": rng.integers(0, 4, count),
            "probability": probability,
            "baseline": 1 - probability,
            "images": numbered_images(count),
            **kwargs,
        }
    )


def comparison(**kwargs: Any) -> Report:
    """Return a report of an in-distribution set and two OOD sets, with names that must be escaped."""
    known = scored("known", "in", -3, 500, 0, labels=np.random.default_rng(9).integers(0, 3, 500))
    sets = known, scored("far", "out", -0.5, 301, 1), scored(f"near {NASTY}", "out", -2.2, 77, 2)
    facts = {"Network": NASTY, "Command": "pnml demo", "Date": "2024-05-17", "Versions": "pnml"}
    spectrum = np.append(np.geomspace(1, 1e-9, 60), np.zeros(4))
    table = Table(title="More", columns=("Set", ("AUROC", "a"), ("AUROC", "b")), rows=((NASTY, 99.96, 100.0),))
    contents = {
        "title": f"A report {NASTY}",
        "facts": facts,
        "sets": sets,
        "class_names": CLASSES,
        "spectrum": spectrum,
    }
    return Report(**{**contents, "tables": (table,), **kwargs})


def unlabelled(**kwargs: Any) -> Report:
    """Return a report of one unlabelled set."""
    return Report(title="New", facts={}, sets=(scored("new", "unlabelled", -1, 90, 3),), **kwargs)


LAYERS = ("stem <b>", "block1.conv", "block2.conv", "block3.conv")


def layered(**kwargs: Any) -> Report:
    """Return a report of a known set, of noise that the first layer gives away, and of a set without all shares."""
    rng = np.random.default_rng(5)

    def leverage(count: int, *, noisy: bool) -> dict[str, np.ndarray[Any, Any]]:
        found = rng.exponential(size=(count, 1 + len(LAYERS)))
        found[:, 1:] *= rng.integers(0, 2, size=(count, len(LAYERS)))  # silent layers
        found[:, 1 if noisy else 0] *= 5
        return {"leverage": found, "strangest": found.argmax(axis=1)}

    sets = (
        scored("known", "in", -3, 200, 0, **leverage(200, noisy=False)),
        scored("noise", "out", -0.5, 90, 1, **leverage(90, noisy=True)),
        scored("near", "out", -1, 70, 2, strangest=rng.integers(0, 5, 70)),
    )
    return Report(**{"title": "Layers", "facts": {}, "sets": sets, "layer_names": LAYERS, **kwargs})


def page_data_of(page: str) -> Any:
    """Return the data of the page's script."""
    (data,) = re.findall(r'<script type="application/json" id="page-data">(.*?)</script>', page, re.DOTALL)
    return json.loads(data)


def calibrated(**kwargs: Any) -> Report:
    """Return a report of a known, a strange and an unlabelled set with ids and layers, and of a calibration."""
    rng = np.random.default_rng(6)

    def named(name: str, role: Any, centre: float, count: int, seed: int) -> ScoredSet:
        ids = [f"{name}-{number}.png" for number in range(count)]
        prediction = np.random.default_rng(seed).integers(0, 3, count)
        return scored(
            name, role, centre, count, seed, ids=ids, strangest=rng.integers(0, 5, count), prediction=prediction
        )

    sets = named("known", "in", -3, 200, 0), named("strange", "out", -1.5, 90, 1), named("new", "unlabelled", -2, 70, 2)
    contents = {"title": "Calibrated", "facts": {}, "sets": sets, "class_names": ("ant", "bee", "cat")}
    known = calibrate(np.exp(rng.normal(-3, 0.7, 400)), predictions=rng.integers(0, 3, 400))
    return Report(**{**contents, "layer_names": LAYERS, "calibration": known, **kwargs})
