"""The norm that embeddings get before the theorem is applied to them.

The regret weighs two things: how little the training set says about the direction of a sample, and how undecided the
model is. For small xᵀg it is their product, ``Γ ≈ xᵀg · Σ p (1 − p) log(1/p)``. The length at which p is computed sets
their balance: p of a short embedding is flat and only the direction counts; p of a long one is certain of everything,
and hardly anything but p counts. ``"auto"`` takes a length in between, by what p says about the training set itself.

At any length p may be so certain of a sample that its doubt vanishes, and with it the regret, however far the sample is
from the training set. So ``"auto"`` assumes that a share ``LABEL_NOISE`` of the labels is random: a heuristic that
keeps p away from 0 and 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from pnml.core import theorem

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pnml.core.correlation import Correlation

EmbeddingScale = Literal["auto", "paper", "natural"]
"""``"auto"``: every embedding gets the norm of :func:`balanced_length`. ``"paper"``: every embedding has norm 1, as
in the paper. ``"natural"``: embeddings stay as they are."""

EMBEDDING_SCALES: tuple[str, ...] = get_args(EmbeddingScale)


ENTROPY_LEFT = 0.25
"""The share of its entropy that p keeps, on average over the training set, at the length of ``"auto"``."""

Scales = tuple[float, float]
"""The norm that embeddings get for p, and the factor of the bias."""

LABEL_NOISE = 0.005
"""The share of labels that ``"auto"`` assumes to be random: its p is (1 − 0.005) p + 0.005 / C."""


def check_embedding_scale(embedding_scale: str) -> None:
    """Raise ``ValueError`` for an unknown scale."""
    if embedding_scale not in EMBEDDING_SCALES:
        raise ValueError(f"embedding_scale must be one of {EMBEDDING_SCALES}, got {embedding_scale!r}")


def balanced_scales(statistic: Correlation, weight: NDArray[Any], bias: NDArray[Any]) -> Scales:
    """Return the length of :func:`balanced_length` for a fitted statistic, and the factor of the bias."""
    norm, embeddings = statistic.mean_norm, _sampled(statistic, weight.shape[1])
    length = balanced_length(embeddings, weight, bias, mean_norm=norm)
    return length, length / norm


def balanced_label_scales(statistic: Correlation, weight: NDArray[Any], bias: NDArray[Any]) -> Scales:
    """Return the same where each row of weight (L, M) and bias (L,) is a label: two classes, with logits 0 and z."""
    norm, embeddings = statistic.mean_norm, _sampled(statistic, weight.shape[1])
    z = _direction_logits(embeddings, weight, bias / norm).reshape(-1)
    length = _length_with_entropy_left(np.stack([np.zeros_like(z), z], axis=1), norm)
    return length, length / norm


def _sampled(statistic: Correlation, width: int) -> NDArray[Any]:
    """Return some training embeddings, (k, M)."""
    if statistic.sample is None:
        raise ValueError("the statistic has no sample of its rows: fit on the rows again")
    return statistic.sample.numpy()[:, :width]


def _direction_logits(rows: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any]) -> NDArray[Any]:
    """Return the logits (k, C) of rows at norm 1; rows of norm 0 are left out."""
    norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    directions = rows[norms[:, 0] > 0] / norms[norms[:, 0] > 0]
    found: NDArray[Any] = directions @ weight.T + bias
    return found


def balanced_length(rows: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any], *, mean_norm: float) -> float:
    """Return the length at which the mean entropy of p over training rows has fallen to a quarter.

    The bias shrinks and grows along with the embeddings, as it belongs to embeddings of their mean norm n: the logits
    of a direction u at length L are ``L (Wu + b/n)``. No length leaves p even, endless length leaves it no doubt. The
    mean entropy falls from the one to the other; at the length returned, a quarter of that way is left.

    Args:
        rows: training embeddings of any length, shape (k, M); those of none are left out.
        weight: of the last layer, shape (C, M).
        bias: shape (C,).
        mean_norm: of the training embeddings, as the head knows them.

    >>> towards_one_class = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> round(balanced_length(towards_one_class, np.eye(2), np.zeros(2), mean_norm=1.5), 3)  # p = 0.958
    3.135
    """
    return _length_with_entropy_left(_direction_logits(rows, weight, bias / mean_norm), mean_norm)


def _length_with_entropy_left(logits: NDArray[Any], mean_norm: float) -> float:
    """Return the length for which logits (k, C) of norm 1 are to be multiplied."""
    logits = logits - logits.max(axis=1, keepdims=True)
    apart = -logits[logits < 1e-9 * logits.min()]
    if not apart.size:
        return mean_norm  # the head makes no difference between the classes, at any length

    def entropy(length: float) -> float:
        log_p = theorem.log_softmax(length * logits)
        return float(-(np.exp(log_p) * log_p).sum(axis=1).mean())

    longest = 1e3 / float(apart.min())
    target = entropy(longest) + ENTROPY_LEFT * (entropy(0.0) - entropy(longest))
    low, high = 0.0, 1 / float(apart.max())
    while entropy(high) > target and high < longest:
        low, high = high, 2 * high
    return _falling_root(lambda length: entropy(length) - target, low, high)


def _falling_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function falls through 0 between ``low`` and ``high``, by the Illinois method."""
    at_low, at_high = function(low), function(high)
    root, moved = high, ""
    for _ in range(100):
        if not at_high < 0 < at_low:
            break
        before, root = root, high - at_high * (high - low) / (at_high - at_low)
        value = function(root)
        if abs(root - before) <= 1e-13 * root:
            break
        if value > 0:  # an end that stays twice is halved, or the other would approach the root from one side only
            low, at_low, at_high, moved = root, value, at_high / (2 if moved == "low" else 1), "low"
        else:
            high, at_high, at_low, moved = root, value, at_low / (2 if moved == "high" else 1), "high"
    return root
