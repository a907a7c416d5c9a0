"""How well probabilities keep their word: log-loss, Brier score, and calibration error.

All take probabilities of shape (n, C), of any array library, and the true classes of shape (n,). (Thresholds on scores
are set in :mod:`pnml.core.calibration`, which is another thing.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pnml.backend.arrays import as_array, to_numpy
from pnml.backend.rows import check_rows
from pnml.uses._checks import whole_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

Binning = Literal["width", "mass"]
"""``"width"``: bins of equal width on [0, 1]. ``"mass"``: bins of equally many samples."""

_SLACK = 0.01  # how far a sum of probabilities, rounded or of half precision, may be from 1


def log_loss(probabilities: Any, labels: Any) -> float:
    """Return the mean of −log p of the true class, in nats; infinite as soon as one true class has probability 0.

    >>> log_loss([[0.5, 0.5], [0.25, 0.75]], labels=[0, 0])  # (log 2 + log 4) / 2
    1.0397207708399179
    """
    p, y = _checked(probabilities, labels)
    with np.errstate(divide="ignore"):
        return float(-np.mean(np.log(p[np.arange(len(p)), y])))


def brier(probabilities: Any, labels: Any) -> float:
    """Return the mean over samples of Σ_i (p_i − 1[i is the true class])²: 0 is perfect, 2 the worst.

    >>> brier([[0.5, 0.5], [0.0, 1.0]], labels=[0, 1])
    0.25
    """
    p, y = _checked(probabilities, labels)
    return float(np.mean(np.sum((p - np.eye(p.shape[1])[y]) ** 2, axis=1)))


class Reliability(NamedTuple):
    """The non-empty bins of a reliability diagram.

    Attributes:
        confidence: the mean largest probability in each bin, shape (b,), ascending.
        accuracy: the share of its predictions that are right, shape (b,).
        samples: how many it holds, shape (b,).
    """

    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    samples: NDArray[np.int64]


def reliability(probabilities: Any, labels: Any, *, bins: int = 15, binning: Binning = "width") -> Reliability:
    """Return how often predictions of about equal confidence are right.

    The prediction is the most probable class, its probability the confidence c. With ``"width"`` bin b of B holds
    (b − 1)/B < c ≤ b/B. With ``"mass"`` a sample with r samples of smaller confidence is in bin ⌊B r / n⌋ + 1, so that
    equal confidences share a bin.

    Args:
        probabilities: shape (n, C).
        labels: the true classes, shape (n,).
        bins: the number B of bins.
        binning: ``"width"`` or ``"mass"``.

    >>> reliability([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6]], labels=[0, 1, 1], bins=2)
    Reliability(confidence=array([0.76666667]), accuracy=array([0.66666667]), samples=array([3]))
    """
    if bins < 1:
        raise ValueError(f"bins is {bins}: expected at least 1")
    p, y = _checked(probabilities, labels)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    if binning == "width":
        edges = np.arange(1, bins) / bins
        number = np.searchsorted(edges, confidence, side="left")
    elif binning == "mass":
        number = bins * np.searchsorted(np.sort(confidence), confidence, side="left") // len(p)
    else:
        raise ValueError(f"binning is {binning!r}: expected 'width' or 'mass'")
    count = np.bincount(number, minlength=bins)
    full = count > 0
    sums = (np.bincount(number, weights=values, minlength=bins)[full] for values in (confidence, right))
    mean_confidence, accuracy = (values / count[full] for values in sums)
    return Reliability(mean_confidence, accuracy, count[full])


def calibration_error(probabilities: Any, labels: Any, *, bins: int = 15, binning: Binning = "width") -> float:
    """Return the expected calibration error (ECE) in percent: Σ_bins (samples / n) · |accuracy − mean confidence|.

    Bins as in :func:`reliability`. It depends on them, and chance alone keeps it above 0: compare it only between
    probabilities of the same samples, and read it beside :func:`log_loss`.

    >>> round(calibration_error([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6]], labels=[0, 1, 1], bins=2), 6)
    10.0
    """
    found = reliability(probabilities, labels, bins=bins, binning=binning)
    return float(100 * np.sum(found.samples * np.abs(found.accuracy - found.confidence)) / found.samples.sum())


def _checked(probabilities: Any, labels: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    p = to_numpy(check_rows(as_array(probabilities), None))
    if len(p) == 0:
        raise ValueError("expected the probabilities of at least one sample, got none")
    sums = p.sum(axis=1)
    bad = (p < 0).any(axis=1) | (np.abs(sums - 1) > _SLACK)
    if bad.any():
        row = int(bad.argmax())
        raise ValueError(
            f"row {row} has the sum {sums[row]} and the smallest entry {p[row].min()}: expected probabilities, none "
            "negative and with a sum of 1; logits need a softmax first"
        )
    y = whole_numbers(labels, "labels", len(p))
    if y.min() < 0 or y.max() >= p.shape[1]:
        wrong = y[(y < 0) | (y >= p.shape[1])][0]
        raise ValueError(
            f"labels hold {wrong}: expected classes from 0 to {p.shape[1] - 1}, the columns of probabilities"
        )
    return p, y
