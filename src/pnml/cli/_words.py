"""Text about a threshold and about the spectrum of the training embeddings, and tables of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.core.subspace import eigenvalue_tolerance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pnml.core.calibration import Threshold

_BLOCKS = " ▁▂▃▄▅▆▇█"
_HEIGHT = 8
_MOST_CLASSES = 40
_NOTES = {
    "leave-one-out": "the network was trained on these samples, so expect to flag more: hold some out if you can",
    "not held-out": "training rows were recognised among these samples, so expect to flag more: calibrate on others",
    "repeated": "training rows have copies, which stay when one is left out, so expect to flag more: hold some out",
}


def describe_threshold(threshold: Threshold) -> list[str]:
    """Return lines that state the threshold, how it was set, and the false alarms to expect."""
    rate = _percent(threshold.false_alarm_rate)
    set_from = f"set from {threshold.count:,} {threshold.source} samples to flag {rate} of in-distribution samples"
    note = [_NOTES[threshold.source]] if threshold.source in _NOTES else []
    if threshold.by is not None:
        own = sum(one.is_own for one in threshold.classes)
        others = [f"{threshold.value:.6g} nats, set from all samples, for the other classes"]
        return [
            f"by predicted class: {own:,} of {threshold.n_classes:,} classes have one of their own",
            f"{set_from} of each such class on average",
            *(others if own < threshold.n_classes else []),
            *note,
        ]
    low, high = threshold.interval
    return [
        f"{threshold.value:.6g} nats: a sample with a larger regret is called out-of-distribution",
        f"{set_from} on average",
        f"this one flags {low:.1%} to {high:.1%} of them with {_percent(threshold.confidence)} confidence",
        *note,
    ]


def describe_classes(threshold: Threshold) -> list[str]:
    """Return a table of what the threshold means for each predicted class; of many, for those flagged most."""
    shown = sorted(threshold.classes, key=lambda one: one.interval, reverse=True)[:_MOST_CLASSES]
    rows = [("class", "samples", "flagged", "threshold", "false alarms")]
    for one in sorted(shown, key=lambda one: one.prediction):
        low, high = one.interval
        rate = f"{low:.1%} to {high:.1%}, {'guaranteed' if one.is_own else 'measured'}"
        rows.append((str(one.prediction), f"{one.count:,}", f"{one.flagged:,}", f"{one.value:.6g}", rate))
    which = "each predicted class"
    if len(threshold.classes) > _MOST_CLASSES:
        which = f"the {_MOST_CLASSES} most flagged of {threshold.n_classes:,} predicted classes"
    confidence = _percent(threshold.confidence)
    words = f"calibration samples of {which}, and where its false-alarm rate lies with {confidence} confidence"
    return [words, *aligned(rows), *advise(threshold)]


def advise(threshold: Threshold) -> list[str]:
    """Return a line that names the predicted classes that one threshold for all flags more often than asked for."""
    often = [one.prediction for one in threshold.classes if one.interval[0] > threshold.false_alarm_rate]
    if threshold.by is not None or not often:
        return []
    named = ", ".join([*map(str, often[:5]), *["..."] * bool(often[5:])])
    which = f"class {named} is" if len(often) == 1 else f"classes {named} are"
    rate = _percent(threshold.false_alarm_rate)
    return [f"{which} flagged more often than {rate}: pnml calibrate --by prediction sets a threshold for each class"]


def threshold_facts(threshold: Threshold) -> dict[str, Any]:
    """Return the threshold, how it was set, and the false alarms to expect, of all classes and of each."""
    return {
        "value": threshold.value,
        "false_alarm_rate": threshold.false_alarm_rate,
        "interval": threshold.interval,
        "confidence": threshold.confidence,
        "source": threshold.source,
        "samples": threshold.count,
        "by": threshold.by,
        "classes": [
            {
                "class": one.prediction,
                "samples": one.count,
                "flagged": one.flagged,
                "value": one.value,
                "interval": one.interval,
                "own": one.is_own,
            }
            for one in threshold.classes
        ],
    }


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return lines of a table: the first column aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([f"{row[0]:<{widths[0]}}", *(f"{cell:>{n}}" for cell, n in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"


def effective_rank(eigenvalues: NDArray[Any]) -> float:
    """Return the exponential of the entropy of eigenvalues: the number of equal ones that have the same entropy.

    >>> effective_rank(np.array([2.0, 2.0, 0.0]))
    2.0
    """
    share = eigenvalues[eigenvalues > 0] / eigenvalues.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


def rank_of(spectrum: NDArray[Any]) -> int:
    """Return how many eigenvalues, descending, are no rounding."""
    return int((spectrum > eigenvalue_tolerance(spectrum)).sum())


def spectrum_facts(spectrum: NDArray[Any]) -> dict[str, float]:
    """Return the rank, the effective rank, and the number of directions with 99% of the energy."""
    energy = np.cumsum(spectrum) / spectrum.sum()
    most = int(np.searchsorted(energy, 0.99)) + 1
    return {"rank": rank_of(spectrum), "effective_rank": effective_rank(spectrum), "directions_of_99_percent": most}


def describe_spectrum(spectrum: NDArray[Any]) -> str:
    """Return the effective rank of the training embeddings, and the number of directions with 99% of the energy."""
    facts = spectrum_facts(spectrum)
    return (
        f"{facts['effective_rank']:.1f} directions in effect (exp of the entropy of the spectrum), "
        f"99% of the energy in {facts['directions_of_99_percent']:,}"
    )


def draw_spectrum(spectrum: NDArray[Any], width: int = 60) -> list[str]:
    """Return lines that draw the eigenvalues of the mean correlation, largest first, on a logarithmic scale.

    Each column shows the largest of a run of eigenvalues; ``×`` marks directions that no training row has.

    >>> for line in draw_spectrum(np.array([0.25, 0.0025, 0.000025, 0.0])):
    ...     print(line)
     2.5e-01 │█
     6.7e-02 │█
     1.8e-02 │█
     4.8e-03 │█▄
     1.3e-03 │██
     3.5e-04 │██
     9.3e-05 │██
     2.5e-05 │███×
             └────
              1  4
    """
    columns = min(width, len(spectrum))
    starts = np.arange(columns) * len(spectrum) // columns
    seen = starts < rank_of(spectrum)
    logs = np.log10(spectrum[starts[seen]])
    top = logs.max()
    step = max((top - logs.min()) / (_HEIGHT - 1), 1e-3)
    levels = np.zeros(columns)
    levels[seen] = (logs - top) / step + _HEIGHT
    lines = []
    for row in range(_HEIGHT, 0, -1):
        eighths = np.clip(np.round((levels - row + 1) * 8), 0, 8).astype(int)
        bars = "".join(_BLOCKS[n] for n in eighths[seen]) + ("×" if row == 1 else " ") * int((~seen).sum())
        lines.append(f" {10 ** (top - (_HEIGHT - row) * step):.1e} │{bars}".rstrip())
    last = f"{len(spectrum):,}"
    return [*lines, f"{'':9}└{'─' * columns}", f"{'':10}1{last:>{max(columns - 1, len(last) + 1)}}"]
