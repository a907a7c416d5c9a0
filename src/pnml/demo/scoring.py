"""The demo itself: a guarded network looks at pictures of what it knows, and of what it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from safetensors import safe_open

import pnml
from pnml.backend.progress import track
from pnml.bench import zoo
from pnml.bench.methods.msp import msp_score
from pnml.demo import assets
from pnml.demo.pictures import Pictures, strange_pictures

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BATCH = 100


class Scored(NamedTuple):
    """Pictures, the network's answers, and two scores of how far to trust each: larger = less.

    Attributes:
        pictures: what was looked at.
        prediction: the class each of them is given, shape (n,).
        probability: of that class, as the network thinks, shape (n,).
        baseline: one minus that probability, shape (n,).
        regret: pNML's, in nats, shape (n,).
        p_value: the share of known pictures with a regret as large, shape (n,).
        is_ood: whether the regret exceeds the detector's threshold, shape (n,).
    """

    pictures: Pictures
    prediction: NDArray[np.int64]
    probability: NDArray[np.float64]
    baseline: NDArray[np.float64]
    regret: NDArray[np.float64]
    p_value: NDArray[np.float64]
    is_ood: NDArray[np.bool_]


class Outcome(NamedTuple):
    """What the demo found.

    Attributes:
        detector: fitted on the training set.
        threshold: of the regret, which came with the detector.
        training: how the network was trained and what came of it, as its file says.
        classes: their names.
        known: the in-distribution pictures.
        strange: the others, a set of each kind.
    """

    detector: pnml.Detector
    threshold: pnml.Threshold
    training: dict[str, str]
    classes: tuple[str, ...]
    known: Scored
    strange: list[Scored]


def run(*, progress: bool = True) -> Outcome:
    """Score the CIFAR-10 sample of the package, and pictures of what CIFAR-10 does not have; seconds on a CPU.

    Args:
        progress: show a progress bar on stderr.
    """
    weights = assets.checked(assets.WEIGHTS)
    network = zoo.load(weights)
    guard = pnml.guard(network).load(assets.checked(assets.DETECTOR))
    kinds = [assets.known_pictures(), *strange_pictures()]
    known, *strange = [score(guard, network, kind) for kind in track(kinds, "scoring", shown=progress)]
    detector = guard.fitted()
    assert detector.threshold is not None  # noqa: S101 - its file holds one
    with safe_open(weights, framework="pt") as file:
        training = file.metadata()
    classes = tuple(assets.manifest()["classes"])
    return Outcome(detector, detector.threshold, training, classes, known, strange)


def score(guard: pnml.Guard, network: zoo.Network, pictures: Pictures) -> Scored:
    """Show pictures to a guarded network, a batch at a time."""
    batches = torch.split(torch.from_numpy(pictures.images).permute(0, 3, 1, 2), _BATCH)
    results = [guard(network.normalise(batch)) for batch in batches]
    tables = [result.to_table() for result in results]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    baseline = msp_score(torch.cat([result.logits for result in results])).numpy()
    return Scored(pictures, baseline=baseline, **{name: columns[name] for name in _COLUMNS})


_COLUMNS = ("prediction", "probability", "regret", "p_value", "is_ood")
