"""Quality of probabilities: log-loss, Brier score and calibration error.

All functions take probabilities of shape (n, C), of any array library, and the true classes of shape (n,). Thresholds
on scores are set in :mod:`pnml.core.calibration`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pnml.uses._checks import as_integers, as_probabilities

if TYPE_CHECKING:
    from numpy.typing import NDArray

Binning = Literal["width", "mass"]
"""``"width"``: bins of equal width on [0, 1]. ``"mass"``: bins with equal numbers of samples."""


def log_loss(probabilities: Any, labels: Any) -> float:
    """Return the mean of −log p of the true class, in nats; infinite if any true class has probability 0.

    >>> log_loss([[0.5, 0.5], [0.25, 0.75]], labels=[0, 0])  # (log 2 + log 4) / 2
    1.0397207708399179
    """
    p, y = _checked(probabilities, labels)
    with np.errstate(divide="ignore"):
        return float(-np.mean(np.log(p[np.arange(len(p)), y])))


def brier(probabilities: Any, labels: Any) -> float:
    """Return the mean over samples of Σ_i (p_i − 1[i is the true class])², between 0 (perfect) and 2.

    >>> brier([[0.5, 0.5], [0.0, 1.0]], labels=[0, 1])
    0.25
    """
    p, y = _checked(probabilities, labels)
    return float(np.mean(np.sum((p - np.eye(p.shape[1])[y]) ** 2, axis=1)))


class Reliability(NamedTuple):
    """The non-empty bins of a reliability diagram.

    Attributes:
        confidence: the mean largest probability in each bin, shape (b,), ascending.
        accuracy: the share of correct predictions in each bin, shape (b,).
        samples: the number of samples in each bin, shape (b,).
    """

    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    samples: NDArray[np.int64]


def reliability(probabilities: Any, labels: Any, *, bins: int = 15, binning: Binning = "width") -> Reliability:
    """Return the accuracy of predictions in bins of similar confidence.

    The prediction is the most probable class, its probability is the confidence c. With ``"width"``, bin b of B holds
    (b − 1)/B < c ≤ b/B. With ``"mass"`` a sample with r samples of smaller confidence is in bin ⌊B r / n⌋ + 1; equal
    confidences share a bin.

    Args:
        probabilities: shape (n, C).
        labels: the true classes, shape (n,).
        bins: the number of bins B.
        binning: ``"width"`` or ``"mass"``.

    >>> reliability([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6]], labels=[0, 1, 1], bins=2)
    Reliability(confidence=array([0.76666667]), accuracy=array([0.66666667]), samples=array([3]))
    """
    if bins < 1:
        raise ValueError(f"bins is {bins}: expected at least 1")
    p, y = _checked(probabilities, labels)
    confidence, correct = p.max(axis=1), p.argmax(axis=1) == y
    if binning == "width":
        edges = np.arange(1, bins) / bins
        bin_of = np.searchsorted(edges, confidence, side="left")
    elif binning == "mass":
        bin_of = bins * np.searchsorted(np.sort(confidence), confidence, side="left") // len(p)
    else:
        raise ValueError(f"binning is {binning!r}: expected 'width' or 'mass'")
    count = np.bincount(bin_of, minlength=bins)
    filled = count > 0
    mean_confidence, accuracy = (
        np.bincount(bin_of, weights=values, minlength=bins)[filled] / count[filled] for values in (confidence, correct)
    )
    return Reliability(mean_confidence, accuracy, count[filled])


def calibration_error(probabilities: Any, labels: Any, *, bins: int = 15, binning: Binning = "width") -> float:
    """Return the expected calibration error (ECE) in percent: Σ_bins (samples / n) · |accuracy − mean confidence|.

    The bins are those of :func:`reliability`. The value depends on the bins and is above 0 by chance alone: compare it
    only on the same samples, together with :func:`log_loss`.

    >>> round(calibration_error([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6]], labels=[0, 1, 1], bins=2), 6)
    10.0
    """
    table = reliability(probabilities, labels, bins=bins, binning=binning)
    return float(100 * np.sum(table.samples * np.abs(table.accuracy - table.confidence)) / table.samples.sum())


def _checked(probabilities: Any, labels: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    p = as_probabilities(probabilities)
    if len(p) == 0:
        raise ValueError("expected the probabilities of at least one sample, got none")
    y = as_integers(labels, "labels", len(p))
    if y.min() < 0 or y.max() >= p.shape[1]:
        wrong = y[(y < 0) | (y >= p.shape[1])][0]
        raise ValueError(
            f"labels contain {wrong}: expected classes from 0 to {p.shape[1] - 1}, the columns of probabilities"
        )
    return p, y
