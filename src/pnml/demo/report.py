"""The demo as a report to open in a browser."""

from __future__ import annotations

import platform
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import torch

from pnml._version import __version__
from pnml.report import Report, ScoredSet

if TYPE_CHECKING:
    from pnml.demo.scoring import Outcome, Scored

_CREDITS = (
    "CIFAR-10 by Alex Krizhevsky, Vinod Nair and Geoffrey Hinton; digits and photographs from scikit-learn, the "
    "photographs by danielbuechele and vultilion (CC BY 2.0); textures, where shown, from scikit-image (CC0)"
)


def as_report(outcome: Outcome) -> Report:
    """Gather what :func:`pnml.report.write_report` shows."""
    detector, threshold, training = outcome.detector, outcome.threshold, outcome.training
    rate = f"{100 * threshold.false_alarm_rate:g} %"
    return Report(
        title="pnml demo: what does a network not know?",
        facts={
            "Network": f"ResNet-20 trained on CIFAR-10 for {training['epochs']} epochs ({training['date']})",
            "Test accuracy": f"{float(training['test_accuracy']):.2f} % of {int(training['test_images']):,} images",
            "Detector": f"fitted on {detector.correlation.count:,} training images; nothing tuned",
            "Threshold": f"set from {threshold.count:,} other test images, to flag {rate} of such",
            "Pictures": _CREDITS,
            "Command": "pnml demo",
            "Date": datetime.now(timezone.utc).date().isoformat(),
            "Versions": f"pnml {__version__}, PyTorch {torch.__version__}, Python {platform.python_version()}",
        },
        sets=tuple(_scored_set(one) for one in (outcome.known, *outcome.strange)),
        class_names=outcome.classes,
        spectrum=detector.subspace.spectrum,
        threshold=threshold.value,
    )


def _scored_set(one: Scored) -> ScoredSet:
    return ScoredSet(
        name=one.pictures.name,
        role="out" if one.pictures.labels is None else "in",
        regret=one.regret,
        prediction=one.prediction,
        probability=one.probability,
        baseline=one.baseline,
        images=one.pictures.images,
        labels=one.pictures.labels,
        ids=one.pictures.captions,
    )
