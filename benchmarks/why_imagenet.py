"""Which part of the score is behind on photographs? Change one at a time.

    python benchmarks/why_imagenet.py --data FOLDER

FOLDER is one of those of ``rows_a_class.py``: of photographs, or of networks trained on CIFAR-100. Run it for each. All
go into one record, with tasks NETWORK/ROWS OF A CLASS/FOLD OR DRAW.
``research/why-imagenet.md`` has the plan, which was written before the first run, and what each change means.

``pnml`` is computed here from its parts, as the changed scores are, and has to come out as in the published tables.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import torch
from all_classes import take_all_classes_at_once
from family import Task, run_family
from family_why import AHEAD
from rows_a_class import tasks as tasks_by_rows

from pnml import Detector
from pnml.backend.rows import divisors, row_norms
from pnml.core import scatter, theorem
from pnml.core.depth import SMALLEST_BACKGROUND, WEIGHT
from pnml.core.profile import shares
from pnml_bench.methods import ALL_METHODS, Method, View

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from pnml.core.model import Layer

    Rows = NDArray[np.float64]

ROWS = (4, 100)  # of a class: of ImageNet there are no more than four
SMALLEST_ENERGY = 1e-3


@dataclass(frozen=True)
class Fit:
    """What scatters are fitted with: predicted classes or labels, rows at the overall mean, and a ridge or none."""

    labels: bool = False
    prior_rows: float = scatter.PRIOR_ROWS
    ridge: bool = True


@dataclass(frozen=True)
class Parts:
    """The parts of a score, by default those of ``pnml``.

    Attributes:
        fit: of the scatters.
        mean: that leverages are about: of the "predicted" class, the "nearest" one, or the "overall" one.
        ratio: whether the leverage about the mean of the class is taken relative to that about the mean of all.
        layers: what they add: their "excess" over training rows, "nothing", or their "sum".
        doubt: what the leverage is combined with: p at the "balanced" length, "nothing", the network's "own" p, or, in
            addition to the first, the "energy".
    """

    fit: Fit = Fit()
    mean: str = "predicted"
    ratio: bool = True
    layers: str = "excess"
    doubt: str = "balanced"


SCORES = {
    "pnml": Parts(),
    "leverage-alone": Parts(doubt="nothing"),
    "own-probabilities": Parts(doubt="own"),
    "energy": Parts(doubt="energy"),
    "no-ratio": Parts(ratio=False),
    "overall-mean": Parts(mean="overall"),
    "nearest-class": Parts(mean="nearest"),
    "labels": Parts(Fit(labels=True)),
    "no-prior-row": Parts(Fit(prior_rows=0.01)),
    "no-ridge": Parts(Fit(ridge=False)),
    "no-layers": Parts(layers="nothing"),
    "sum-of-layers": Parts(layers="sum"),
    "together": Parts(Fit(labels=True, ridge=False), mean="overall", layers="sum", doubt="own"),
}


@lru_cache(maxsize=1)
def fitted(train: View, fit: Fit) -> Detector:
    """Return a detector fitted on the training rows."""
    head = train.network.head
    detector = Detector(head.weight.detach(), head.bias.detach())
    labels = train.images.labels if fit.labels else None
    detector.fit(train.embeddings, features=train.features(train.layers), labels=labels)
    with (
        patch.object(scatter, "PRIOR_ROWS", fit.prior_rows),
        nullcontext() if fit.ridge else patch.object(scatter, "choose_ridge", smallest_ridge),
    ):
        _ = detector.model  # now, not after the end of the changes
    return detector


def smallest_ridge(*_: Any, lowest: float) -> float:
    return lowest


def to_unit_norm(rows: Tensor) -> Rows:
    """Return rows (n, M) in float64, scaled to norm 1."""
    x: Rows = rows.double().numpy()
    unit: Rows = x / divisors(row_norms(x))[:, None]
    return unit


def balanced_logits(detector: Detector, view: View) -> Rows:
    """Return the logits (n, C) of embeddings at the balanced length."""
    weight, bias = detector.scaled_head
    logits: Rows = to_unit_norm(view.embeddings) @ weight.T + bias
    return logits


def leverages(detector: Detector, view: View, *, nearest: bool) -> Rows:
    """Return the leverages of the embedding, about the mean of all rows and of the layers, shape (n, 2 + L)."""
    depth = detector.model.depth
    assert depth is not None  # noqa: S101 - for mypy
    embeddings, *features = map(to_unit_norm, (view.embeddings, *view.features(view.layers)))
    predicted = balanced_logits(detector, view).argmax(axis=1)
    known = np.flatnonzero(detector.correlation.class_counts)

    def about_class(x: Rows, layer: Layer) -> Rows:
        if not nearest:
            return squares((x - layer.means[predicted]) @ layer.subspace.whitening)
        return nearest_squares(x @ layer.subspace.whitening, layer.means[known] @ layer.subspace.whitening)

    about_all = squares((embeddings - depth.background.means) @ depth.background.subspace.whitening)
    layers = (about_class(x, layer) for x, layer in zip(features, depth.layers, strict=True))
    return np.stack([about_class(embeddings, depth.embedding), about_all, *layers], axis=1)


def squares(rows: Rows) -> Rows:
    found: Rows = (rows**2).sum(axis=1)
    return found


def nearest_squares(rows: Rows, means: Rows) -> Rows:
    """Return the squared distance of each row to the nearest of the means."""
    found: Rows = torch.cdist(torch.from_numpy(rows), torch.from_numpy(means)).amin(dim=1).numpy() ** 2
    return found


def leverage(detector: Detector, h: Rows, parts: Parts) -> Rows:
    """Return the leverage (n,) that the parts make of leverages (n, 2 + L)."""
    geometry, depth = detector.geometry, detector.model.depth
    assert geometry is not None  # noqa: S101 - for mypy
    assert depth is not None  # noqa: S101
    own, background = h[:, 0], np.maximum(h[:, 1], SMALLEST_BACKGROUND)
    total: Rows = WEIGHT * np.sqrt(own / depth.typical) * (own / background if parts.ratio else 1)
    if parts.mean == "overall":
        total = WEIGHT * np.sqrt(background / np.median(geometry.background.typical))
    if parts.layers == "excess":
        total = total + shares(h, depth.profile, depth.profile.arrays).sum(axis=1)
    if parts.layers == "sum":
        medians = [np.median(one.typical) for one in geometry.scatters[1:]]
        total = total + WEIGHT * (h[:, 2:] / medians).mean(axis=1)
    return total


def score(detector: Detector, view: View, h: Rows, parts: Parts) -> Rows:
    """Return the score (n,) that the parts make of leverages (n, 2 + L)."""
    total = leverage(detector, h, parts)
    if parts.doubt == "nothing":
        return total
    own_logits: Rows = view.logits.double().numpy()
    logits = own_logits if parts.doubt == "own" else balanced_logits(detector, view)
    p = theorem.noisy_softmax(logits, detector.label_noise)
    regrets: Rows = theorem.regrets(np.log(p), (total / (1 + total))[:, None], p)
    if parts.doubt == "energy":
        return regrets / np.maximum(np.logaddexp.reduce(own_logits, axis=1), SMALLEST_ENERGY)
    return regrets


class Changed(Method):
    """A score made of other parts."""

    composes = False
    needs_features = True

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def fit(self, train: View) -> Changed:
        """Fit a detector, or take the one of the score before that was fitted alike."""
        self.detector: Detector = fitted(train, self.parts.fit)
        return self

    def score(self, view: View) -> Tensor:
        """Return the score of every picture, shape (n,)."""
        nearest = self.parts.mean == "nearest"
        key = "leverages", self.parts.fit, nearest
        h = view.cached(key, lambda: leverages(self.detector, view, nearest=nearest))
        return torch.from_numpy(score(self.detector, view, h, self.parts))


def tasks(folder: Path) -> dict[str, Callable[[], Task]]:
    """Return the tasks of ``rows_a_class.py`` with so many rows of a class."""
    return {name: make for name, make in tasks_by_rows(folder).items() if int(name.split("/")[1]) in ROWS}


def methods() -> dict[str, Callable[[], Method]]:
    """Return the scores by fit, so that each fit is made once, then the peers."""
    by_fit = sorted(SCORES.items(), key=lambda item: repr(item[1].fit))
    return {**{name: partial(Changed, parts) for name, parts in by_fit}, **{name: ALL_METHODS[name] for name in AHEAD}}


if __name__ == "__main__":
    take_all_classes_at_once()
    run_family("why-imagenet", __doc__, tasks, methods())
