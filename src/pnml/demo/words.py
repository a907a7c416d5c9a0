"""The demo in sentences: plain characters, fewer than 80 in a line."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from pnml.demo.pictures import TEXTURES, texture_files

if TYPE_CHECKING:
    from pnml.demo.scoring import Outcome, Scored


def introduction(outcome: Outcome) -> str:
    """Say what is being looked at."""
    *names, last = outcome.classes
    accuracy = float(outcome.training["test_accuracy"])
    return _paragraph(
        f"A ResNet-20 was trained to tell {', '.join(names)} and {last} apart, and names {accuracy:.1f}% of CIFAR-10's "
        f"test images rightly. Here it sees {len(outcome.known.regret)} of them, and {len(outcome.strange)} kinds of "
        "pictures that show nothing of the sort; it gives them the same ten names. Can they be told apart by how "
        "sure the network is (Baseline: one minus its largest probability), and by the regret (pNML)? "
        "100 is perfect; an AUROC of 50 is a coin."
    )


def left_out() -> str:
    """Say which pictures are not installed; nothing if all are."""
    if texture_files():
        return ""
    return f"Left out for want of scikit-image: windows of {', '.join(TEXTURES)}."


def examples(outcome: Outcome) -> str:
    """Say which picture of each kind the network is surest of, and what the regret makes of it."""
    lines = [fill(_surest(outcome, one), 79, initial_indent="- ", subsequent_indent="  ") for one in outcome.strange]
    return "\n".join(["The picture of each kind that the network is surest of:", *lines])


def decision(outcome: Outcome) -> str:
    """Say what the detector's own threshold makes of all pictures."""
    threshold = outcome.threshold
    strange = np.concatenate([one.is_ood for one in outcome.strange])
    return _paragraph(
        f"Pictures with a regret over {threshold.value:.3g} nats are flagged: a threshold set from {threshold.count:,} "
        f"other CIFAR-10 test images to flag {threshold.false_alarm_rate:.0%} of such. It flags "
        f"{outcome.known.is_ood.mean():.1%} of the known pictures and {strange.mean():.1%} of the strange ones."
    )


def _surest(outcome: Outcome, one: Scored) -> str:
    row = int(np.argmin(one.baseline))
    return (
        f"{one.pictures.captions[row]} is called {outcome.classes[one.prediction[row]]!r} with "
        f"{_percent(float(one.probability[row]))}: regret {one.regret[row]:.2g}, p-value {one.p_value[row]:.1g}, "
        f"{'flagged' if one.is_ood[row] else 'not flagged'}"
    )


def _percent(share: float) -> str:
    """Give a percentage that says 100 only of certainty.

    >>> _percent(0.98231), _percent(0.99996)
    ('98.2%', 'over 99.9%')
    """
    return "over 99.9%" if share > 0.999 else f"{share:.1%}"


def _paragraph(text: str) -> str:
    return fill(text, 79)
