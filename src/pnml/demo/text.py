"""The texts that ``pnml demo`` prints: ASCII, fewer than 80 characters a line."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from pnml.demo.images import TEXTURES, texture_files
from pnml.demo.report import as_report
from pnml.report.verdict import misses as why_missed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.demo.scoring import DemoResult
    from pnml.report import ScoredSet


def introduction(result: DemoResult) -> str:
    """Return a description of the network, the images and the two scores."""
    *names, last = result.classes
    return _paragraph(
        f"A ResNet-20 classifies {float(result.training['test_accuracy']):.1f}% of the CIFAR-10 test images correctly "
        f"({', '.join(names)} or {last}). Here it classifies {len(result.ind)} of them (in-distribution) and images of "
        f"{len(result.ood)} other kinds, which show none of these classes (out-of-distribution). The table shows how "
        "well two scores separate them: 1 - the largest probability (Baseline) and the regret (pNML). 100 is perfect; "
        "an AUROC of 50 is chance."
    )


def missing_textures() -> str:
    """Return a note about textures that are not installed; empty if they are."""
    if texture_files():
        return ""
    return f"Left out because scikit-image is not installed: crops of {', '.join(TEXTURES)}."


def catches(result: DemoResult) -> str:
    """Return, of the flagged images of each kind, the one that the network is most sure of."""
    flagged = {one.name: (one, result.threshold.is_ood(one.regret)) for one in result.ood}
    lines = [_item(_example(result, one, is_ood)) for one, is_ood in flagged.values() if is_ood.any()]
    return "\n".join(["Caught. The flagged image of each kind that the network is most sure of:", *lines])


def misses(result: DemoResult) -> str:
    """Return how many images of each kind are not flagged, why, and the one that the network is most sure of."""
    report, lines = as_report(result), []
    for one in result.ood:
        is_missed = ~result.threshold.is_ood(one.regret)
        if is_missed.any():
            lines.append(
                _item(f"{one.name}: {why_missed(report, one)} For example, {_example(result, one, is_missed)}.")
            )
    return "\n".join(["Missed, and why:", *lines]) if lines else "None of them is missed."


def decision(result: DemoResult) -> str:
    """Return the shares of images that the threshold flags."""
    threshold = result.threshold
    ind, ood = threshold.is_ood(result.ind.regret), threshold.is_ood(np.concatenate([one.regret for one in result.ood]))
    return _paragraph(
        f"Images with a regret above {threshold.value:.3g} nats are flagged. This threshold was set on "
        f"{threshold.count:,} other CIFAR-10 test images to flag {threshold.false_alarm_rate:.0%} of them. It flags "
        f"{ind.mean():.1%} of the in-distribution images and {ood.mean():.1%} of the out-of-distribution images."
    )


def _example(result: DemoResult, images: ScoredSet, which: NDArray[np.bool_]) -> str:
    """Return the prediction, the regret and the strangest layer of one of some images: the most confident one."""
    row = int(np.argmin(np.where(which, np.asarray(images.baseline), np.inf)))
    caption, prediction, probability, regret, p_value, is_ood = (
        np.asarray(column)[row]
        for column in (
            images.ids,
            images.prediction,
            images.probability,
            images.regret,
            result.threshold.p_value(images.regret),
            result.threshold.is_ood(images.regret),
        )
    )
    layer = f", strangest in {_strangest_layer(result, images, row)}" if is_ood else ""
    return (
        f"{caption}: {result.classes[prediction]!r} with probability {_percent(probability)}; regret {regret:.2g}, "
        f"p-value {p_value:.1g}{layer}"
    )


def _strangest_layer(result: DemoResult, images: ScoredSet, row: int) -> str:
    """Return the layer in which an image is strangest."""
    return ("the embedding", *result.detector.watched_names)[int(np.asarray(images.strangest)[row])]


def _percent(share: float) -> str:
    """Return a percentage that is not rounded up to 100.

    >>> _percent(0.98231), _percent(0.99996)
    ('98.2%', 'over 99.9%')
    """
    return "over 99.9%" if share > 0.999 else f"{share:.1%}"


def _item(text: str) -> str:
    return fill(text, 79, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)


def _paragraph(text: str) -> str:
    return fill(text, 79, break_on_hyphens=False)
