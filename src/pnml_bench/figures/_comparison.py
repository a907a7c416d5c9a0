"""Two scores of the same samples, which figures compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Vector = np.ndarray[Any, Any]


class Scores(NamedTuple):
    """One score of the in-distribution samples, shape (n,), and of the OOD samples, shape (m,)."""

    ind: Vector
    ood: Vector


@dataclass(frozen=True, eq=False)
class Comparison:
    """A method's own score and its score with pNML, of the same samples of one IND-OOD pair."""

    model: str
    ind: str
    ood: str
    method: str
    alone: Scores
    plus_pnml: Scores
