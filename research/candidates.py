"""Every score that was tried, by family; a larger score means more out-of-distribution.

A candidate takes a :class:`study.Study` and gives a function from rows to scores. It may look at the training rows
(each scored as if it had not been seen) and at nothing else: no OOD data, no number for a user to choose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

from pnml.core import theorem
from pnml.core.subspace import xtg

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from study import Floats, Rows, Study

    Score = Callable[[Rows], Floats]
    Candidate = Callable[[Study], Score]

GRID = 2.0 ** np.arange(-6, 3.01, 0.125)  # lengths that are searched, as fractions of the mean training norm
OCTAVES = (1 / 8, 1 / 4, 1 / 2, 1)


def entropy(log_p: Floats) -> Floats:
    return -(np.exp(log_p) * log_p).sum(1)


def doubt(log_p: Floats) -> Floats:
    """What the regret is per unit of small xᵀg: Σ p (1 − p) log(1/p)."""
    return (np.exp(log_p) * -np.expm1(log_p) * -np.maximum(log_p, -700)).sum(1)


def at(fraction: float) -> Candidate:
    return lambda study: lambda rows: rows.regret(fraction * study.mean_norm)


def best(value: Callable[[Study, Floats], float]) -> Candidate:
    """The length at which a function of p on the training rows is largest."""

    def make(study: Study) -> Score:
        length = max((f * study.mean_norm for f in GRID), key=lambda at: value(study, study.train.log_p(at)))
        return lambda rows: rows.regret(length)

    return make


def entropy_left(share: float) -> Candidate:
    return best(lambda study, log_p: -abs(entropy(log_p).mean() / np.log(len(study.bias)) - share))


def log_loss_of_q(study: Study, log_p: Floats) -> float:
    q = theorem.predictive(log_p, xtg(study.train.h), log=True)
    return float(np.log(q[np.arange(len(q)), study.labels] + 1e-300).mean())


def log_loss_of_p(study: Study, log_p: Floats) -> float:
    return float(log_p[np.arange(len(log_p)), study.labels].mean())


def as_wide_as_leverage(study: Study, log_p: Floats) -> float:
    return -abs(np.log(doubt(log_p) + 1e-300).std() - np.log(xtg(study.train.h)).std())


def falls_fastest(study: Study) -> Score:
    """The length at which the mean entropy falls fastest with the logarithm of the length."""
    curve = np.array([entropy(study.train.log_p(f * study.mean_norm)).mean() for f in GRID])
    length = GRID[np.argmin(np.gradient(curve))] * study.mean_norm
    return lambda rows: rows.regret(length)


def own_norm(fraction: float, leverage: str) -> Candidate:
    return lambda _study: lambda rows: rows.regret(fraction * rows.norm, getattr(rows, leverage))


def with_leverage(share: float, leverage: str) -> Candidate:
    """The length of :func:`entropy_left` with another leverage."""

    def make(study: Study) -> Score:
        length = _length(study, share)
        return lambda rows: rows.regret(length, getattr(rows, leverage))

    return make


def _length(study: Study, share: float) -> float:
    shares = [entropy(study.train.log_p(f * study.mean_norm)).mean() / np.log(len(study.bias)) for f in GRID]
    return float(GRID[np.argmin(np.abs(np.array(shares) - share))] * study.mean_norm)


def of_the_class(study: Study) -> Score:
    """Half the mean norm of the training rows of the predicted class."""
    predicted = study.train.logits.argmax(1)
    means = np.array([study.train.norm[predicted == c].mean() for c in range(len(study.bias))])
    return lambda rows: rows.regret(means[rows.logits.argmax(1)] / 2)


def temperature(value: Callable[[Study, Floats], float]) -> Candidate:
    """Regrets of the network's own logits divided by a temperature, bias and all, chosen on the training rows."""

    def make(study: Study) -> Score:
        inverse = max(GRID, key=lambda at: value(study, theorem.log_softmax(at * study.train.logits)))
        return lambda rows: theorem.regret(theorem.log_softmax(inverse * rows.logits), xtg(rows.h), log=True)

    return make


def mean_of(fractions: Sequence[float]) -> Candidate:
    return lambda study: lambda rows: np.mean([rows.regret(f * study.mean_norm) for f in fractions], axis=0)


def mean_log_of(fractions: Sequence[float]) -> Candidate:
    return lambda study: lambda rows: np.mean([np.log(rows.regret(f * study.mean_norm)) for f in fractions], axis=0)


def union(fractions: Sequence[float]) -> Candidate:
    """One learner for all lengths: each class gets its best genie of any of them."""

    def make(study: Study) -> Score:
        def score(rows: Rows) -> Floats:
            genies = [theorem.genie(rows.log_p(f * study.mean_norm), xtg(rows.h), log=True) for f in fractions]
            return np.log(np.max(genies, axis=0).sum(1))

        return score

    return make


def standardised(fractions: Sequence[float]) -> Candidate:
    def make(study: Study) -> Score:
        lengths = [f * study.mean_norm for f in fractions]
        base = [study.train.regret(length) for length in lengths]
        pairs = list(zip(lengths, base, strict=True))
        return lambda rows: np.sum([(rows.regret(length) - b.mean()) / b.std() for length, b in pairs], axis=0)

    return make


def p_values(fractions: Sequence[float], combine: Callable[[Floats], Floats]) -> Candidate:
    """Leave-one-out p-values of the regret at several lengths, combined; a small p-value is a large score."""

    def make(study: Study) -> Score:
        lengths = [f * study.mean_norm for f in fractions]
        base = [np.sort(study.train.regret(length)) for length in lengths]

        def score(rows: Rows) -> Floats:
            as_large = [
                len(b) - np.searchsorted(b, rows.regret(length)) for length, b in zip(lengths, base, strict=True)
            ]
            return combine((np.stack(as_large) + 1) / (len(base[0]) + 1))

        return score

    return make


def knn(study: Study) -> Score:
    def score(rows: Rows) -> Floats:
        parts = np.array_split(rows.direction, max(1, len(rows.x) // 500))
        return np.concatenate([-np.partition(p @ study.train.direction.T, -50, axis=1)[:, -50] for p in parts])

    return score


def vim(study: Study) -> Score:
    """Virtual-logit matching; the subspace from the whole training set, half of its directions in it."""
    origin, n = -np.linalg.pinv(study.weight) @ study.bias, study.count
    cross = np.outer(study.held["sum/raw"], origin)
    scatter = study.held["correlation/raw"] - cross - cross.T + n * np.outer(origin, origin)
    residual = np.linalg.eigh(scatter)[1][:, : len(scatter) - len(scatter) // 2]
    alpha = study.train.logits.max(1).mean() / np.linalg.norm((study.train.x - origin) @ residual, axis=1).mean()
    return lambda rows: alpha * np.linalg.norm((rows.x - origin) @ residual, axis=1) - logsumexp(rows.logits, axis=1)


CANDIDATES: dict[str, dict[str, Candidate]] = {
    "Peers": {
        "MSP": lambda _: lambda rows: 1 - np.exp(theorem.log_softmax(rows.logits)).max(1),
        "Energy": lambda _: lambda rows: -logsumexp(rows.logits, axis=1),
        "kNN, k = 50": knn,
        "ViM": vim,
    },
    "The paper": {"norm 1": lambda _: lambda rows: rows.regret(1.0), "leverage alone": lambda _: lambda rows: rows.h},
    "A fraction of the mean training norm": {
        name: at(f)
        for name, f in (("1/16", 1 / 16), ("1/8", 1 / 8), ("1/4", 1 / 4), ("1/2", 1 / 2), ("1", 1), ("2", 2))
    },
    "Embeddings as they are": {
        "unscaled": own_norm(1, "h_raw"),
        "unscaled for p, norm 1 for the leverage": own_norm(1, "h"),
        "half their own length": own_norm(0.5, "h_raw"),
        "half their own length for p, norm 1 for the leverage": own_norm(0.5, "h"),
        "half the mean norm of the predicted class": of_the_class,
    },
    "A length from the training set": {
        "least leave-one-out log-loss of q": best(log_loss_of_q),
        "least log-loss of p": best(log_loss_of_p),
        **{f"entropy of p is {share:g} log C": entropy_left(share) for share in (0.05, 0.1, 0.2, 0.25, 0.3, 0.5)},
        "entropy of p varies most": best(lambda _, log_p: entropy(log_p).std()),
        "entropy of p varies as much as it is": best(
            lambda _, lp: -abs(np.log(entropy(lp).std() / entropy(lp).mean()))
        ),
        "entropy of p falls fastest": falls_fastest,
        "doubt varies as much as leverage, in logarithms": best(as_wide_as_leverage),
    },
    "With a bias coordinate, entropy of p 0.25 log C": {
        "norm 1": with_leverage(0.25, "h_unit_bias"),
        "unscaled leverage": with_leverage(0.25, "h_raw"),
        "unscaled leverage with bias": with_leverage(0.25, "h_raw_bias"),
    },
    "Temperature instead of length": {
        "least log-loss of p": temperature(log_loss_of_p),
        "entropy of p is 0.25 log C": temperature(
            lambda study, log_p: -abs(entropy(log_p).mean() / np.log(len(study.bias)) - 0.25)
        ),
    },
    "Several lengths": {
        "mean of 1/4 and 1/2": mean_of((1 / 4, 1 / 2)),
        "mean over (0, 1]": mean_of([(i + 0.5) / 8 for i in range(8)]),
        "mean logarithm over (0, 1]": mean_log_of([(i + 0.5) / 8 for i in range(8)]),
        "one learner for 1/8 to 1": union(OCTAVES),
        "standardised sum, 1/8 to 1": standardised(OCTAVES),
        "p-values, 1/8 to 1, Fisher": p_values(OCTAVES, lambda p: -np.log(p).sum(0)),
        "p-values, 1/8 to 1, Cauchy": p_values(OCTAVES, lambda p: np.tan((0.5 - p) * np.pi).mean(0)),
        "p-values, 1/8 to 1, smallest": p_values(OCTAVES, lambda p: -p.min(0)),
    },
}
