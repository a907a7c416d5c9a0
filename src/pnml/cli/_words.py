"""Text about a threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pnml.core.calibration import Threshold


def describe_threshold(threshold: Threshold) -> list[str]:
    """Return lines that state the threshold, how it was set, and the false alarms to expect.

    >>> from pnml.core.calibration import calibrate
    >>> for line in describe_threshold(calibrate([0.1] * 94 + [0.7] * 5, false_alarm_rate=0.05)):
    ...     print(line)
    0.7 nats: a sample with a larger regret is called out-of-distribution
    set from 99 held-out samples to flag 5% of in-distribution samples on average
    this one flags 1.7% to 10.0% of them with 95% confidence
    """
    low, high = threshold.interval
    rate, confidence = (f"{100 * share:.4g}%" for share in (threshold.false_alarm_rate, threshold.confidence))
    lines = [
        f"{threshold.value:.6g} nats: a sample with a larger regret is called out-of-distribution",
        f"set from {threshold.count:,} {threshold.source} samples to flag {rate} of in-distribution samples on average",
        f"this one flags {low:.1%} to {high:.1%} of them with {confidence} confidence",
    ]
    if threshold.source == "leave-one-out":
        lines.append("the network was trained on these samples, so expect to flag more: hold some out if you can")
    return lines


def threshold_facts(threshold: Threshold) -> dict[str, Any]:
    """Return the threshold, how it was set, and the false alarms to expect.

    >>> from pnml.core.calibration import calibrate
    >>> threshold_facts(calibrate([0.1] * 94 + [0.7] * 5, false_alarm_rate=0.05))["value"]
    0.7
    """
    return {
        "value": threshold.value,
        "false_alarm_rate": threshold.false_alarm_rate,
        "interval": threshold.interval,
        "confidence": threshold.confidence,
        "source": threshold.source,
        "samples": threshold.count,
    }
