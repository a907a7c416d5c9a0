"""Score in-distribution and out-of-distribution images with the packaged network and detector."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

import pnml
from pnml.backend.progress import track
from pnml.demo import assets
from pnml.demo.images import ood_images
from pnml.demo.network import load_network
from pnml.report import ScoredSet

if TYPE_CHECKING:
    from pnml.demo.images import Images
    from pnml.demo.network import ResNet20

_BATCH = 100


class DemoResult(NamedTuple):
    """The result of the demo.

    Attributes:
        detector: the packaged detector, fitted on the training set.
        threshold: the threshold of the detector.
        training: metadata of the network: recipe, date, test accuracy, ...
        classes: the class names.
        ind: the in-distribution images.
        ood: the out-of-distribution images, one set for each kind.
    """

    detector: pnml.Detector
    threshold: pnml.Threshold
    training: dict[str, str]
    classes: tuple[str, ...]
    ind: ScoredSet
    ood: list[ScoredSet]


def run(*, progress: bool = True) -> DemoResult:
    """Score the packaged CIFAR-10 images and images of other kinds; takes seconds on a CPU.

    Args:
        progress: whether to show a progress bar on stderr.
    """
    network, training = load_network(assets.verified_path(assets.WEIGHTS))
    guard = pnml.guard(network).load(assets.verified_path(assets.DETECTOR))
    kinds = [assets.ind_images(), *ood_images()]
    ind, *ood = [score(guard, network, kind) for kind in track(kinds, "scoring", shown=progress)]
    detector = guard.fitted()
    assert detector.threshold is not None  # noqa: S101 - the packaged detector is calibrated
    return DemoResult(detector, detector.threshold, training, tuple(assets.manifest()["classes"]), ind, ood)


def score(guard: pnml.Guard, network: ResNet20, images: Images) -> ScoredSet:
    """Return the predictions and scores of images."""
    batches = torch.split(torch.from_numpy(images.pixels).permute(0, 3, 1, 2), _BATCH)
    results = [guard(network.normalise(batch)) for batch in batches]
    tables = [result.to_table() for result in results]
    probabilities = torch.cat([result.logits for result in results]).double().softmax(dim=-1)
    return ScoredSet(
        name=images.name,
        role="out" if images.labels is None else "in",
        **{name: np.concatenate([table[name] for table in tables]) for name in ("regret", "prediction", "probability")},
        baseline=1 - probabilities.amax(dim=-1).numpy(),
        images=images.pixels,
        labels=images.labels,
        ids=images.captions,
        leverage=torch.cat([result.leverage_by_layer for result in results]).numpy(),
        strangest=torch.cat([result.strangest_layer for result in results]).numpy(),
    )
