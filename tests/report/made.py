"""Reports to look at: scores drawn from a seed, pictures that say which sample they are of."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from pnml.report import Report, ScoredSet, Table

CLASSES = ("ant", "bee <b>", "cat")
NASTY = """<script>alert("x")</script> & 'quotes' </title> $title"""


def pictures(count: int, side: int = 8) -> np.ndarray[Any, Any]:
    """Pictures whose first pixel is the number of the sample."""
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
            "images": pictures(count),
            **kwargs,
        }
    )


def comparison(**kwargs: Any) -> Report:
    """An in-distribution set, two others, and names that must be escaped."""
    known = scored("known", "in", -3, 500, 0, labels=np.random.default_rng(9).integers(0, 3, 500))
    sets = known, scored("far", "out", -0.5, 301, 1), scored(f"near {NASTY}", "out", -2.2, 77, 2)
    facts = {"Network": NASTY, "Command": "pnml demo", "Date": "2024-05-17", "Versions": "pnml"}
    spectrum = np.append(np.geomspace(1, 1e-9, 60), np.zeros(4))
    table = Table(title="More", columns=("Set", ("AUROC", "a"), ("AUROC", "b")), rows=((NASTY, 99.96, 100.0),))
    held = {"title": f"A report {NASTY}", "facts": facts, "sets": sets, "class_names": CLASSES, "spectrum": spectrum}
    return Report(**{**held, "tables": (table,), **kwargs})


def unlabelled(**kwargs: Any) -> Report:
    """A folder of somebody's own pictures."""
    return Report(title="Mine", facts={}, sets=(scored("mine", "unlabelled", -1, 90, 3),), **kwargs)


def numbers_in(page: str) -> Any:
    """What the page's script reads."""
    found = re.findall(r'<script type="application/json" id="numbers">(.*?)</script>', page, re.DOTALL)
    assert len(found) == 1
    return json.loads(found[0])
