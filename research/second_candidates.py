"""Every score of the second round, by family; a larger score means more out-of-distribution.

A candidate gives the scores of rows of a :class:`second_network.Network`. It may look at the training rows, their
labels and the head: at no OOD data and no test data. What is not a regret is a product in its place: xᵀg times the
doubt Σ p (1 − p) log(1/p), to which the regret comes down where xᵀg is small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pnml.core import theorem
from pnml.core.subspace import xtg

if TYPE_CHECKING:
    from collections.abc import Callable

    from second_network import Floats, Network, Rows

    Candidate = Callable[[Network], Floats]
    Leverage = Callable[[Rows], Floats]

NOISE, QUARTER = 0.02, 0.25
TINY = 1e-300
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


def regret(log_p: Floats, h: Floats) -> Floats:
    """Regret of log-probabilities (n, C) with one leverage for each row, (n,), or for each label too, (n, C)."""
    t = xtg(np.maximum(h, TINY))
    found: Floats = theorem.regrets(log_p, t if t.ndim == 2 else t[:, None])
    return found


def doubt(log_p: Floats) -> Floats:
    found: Floats = (np.exp(log_p) * np.expm1(log_p) * log_p).sum(axis=1)
    return found


def mixed(log_p: Floats, share: float) -> Floats:
    """Log-probabilities of labels of which a share is drawn at random."""
    return np.log((1 - share) * np.exp(log_p) + share / log_p.shape[1]) if share else log_p


def noisy(rows: Rows, share: float = NOISE, entropy: float = QUARTER) -> Floats:
    return mixed(rows.log_p(rows.network.length(entropy)), share)


def paper(network: Network) -> Floats:
    return regret(theorem.log_softmax(network.new.projected + network.bias), network.new.h)


def label_noise(share: float, entropy: float = QUARTER) -> Candidate:
    return lambda network: regret(noisy(network.new, share, entropy), network.new.h)


def log_leverage(rows: Rows) -> Floats:
    found: Floats = np.log(xtg(np.maximum(rows.h, TINY)))
    return found


def log_doubt(rows: Rows, floor: float = 0.0) -> Floats:
    return np.log(doubt(noisy(rows, 0)) + floor + TINY)


def floor(share: float) -> Candidate:
    return lambda network: log_leverage(network.new) + log_doubt(network.new, share * float(np.log(len(network.bias))))


def power(exponent: float) -> Candidate:
    return lambda network: log_leverage(network.new) + exponent * log_doubt(network.new)


def standardised(combine: Callable[[Floats, Floats], Floats]) -> Candidate:
    """Both logarithms, each less its mean over the training rows and by its spread there, combined."""

    def score(network: Network) -> Floats:
        parts = []
        for of in (log_leverage, log_doubt):
            seen = of(network.train)
            parts.append((of(network.new) - seen.mean()) / seen.std())
        return combine(*parts)

    return score


def mean_up_to(times: float) -> Candidate:
    """The mean regret over lengths from 0 to so many times that of "auto", by Gauss's eight nodes."""

    def score(network: Network) -> Floats:
        rows, longest = network.new, times * network.length()
        logits = rows.projected + network.bias / network.mean_norm
        lengths = longest * (NODES + 1) / 2
        regrets = [regret(theorem.log_softmax(length * logits), rows.h) for length in lengths]
        found: Floats = WEIGHTS @ np.array(regrets) / 2
        return found

    return score


def own_norms(share: float, leverage: Leverage) -> Candidate:
    """P of the network's own logits, times the factor that leaves a quarter of the entropy."""

    def score(network: Network) -> Floats:
        log_p = theorem.log_softmax(network.factor * network.new.logits)
        return regret(mixed(log_p, share), leverage(network.new))

    return score


def with_leverage(leverage: Leverage, share: float = NOISE) -> Candidate:
    return lambda network: regret(noisy(network.new, share), leverage(network.new))


def unit(rows: Rows) -> Floats:
    return rows.h


def raw(rows: Rows) -> Floats:
    return rows.leverage(rows.network.raw, rows.x)


def kept(rows: Rows) -> Floats:
    return rows.leverage(rows.network.kept, rows.direction)


def as_if_kept(rows: Rows) -> Floats:
    """Leverage of the whole training set, as large as if it had no more rows than were kept."""
    return rows.h * (rows.network.count / len(rows.network.labels))


def centred(rows: Rows) -> Floats:
    network = rows.network
    mean = network.sums["unit"][1] / network.count
    found: Floats = rows.leverage(network.centred, rows.direction - mean) + 1 / network.count
    return found


def of_predicted(rows: Rows) -> Floats:
    found: Floats = np.take_along_axis(rows.h_within, rows.logits.argmax(axis=1)[:, None], axis=1)[:, 0]
    return found


def of_nearest(rows: Rows) -> Floats:
    found: Floats = rows.h_within.min(axis=1)
    return found


def expected(rows: Rows) -> Floats:
    found: Floats = (np.exp(noisy(rows, 0)) * rows.h_within).sum(axis=1)
    return found


def of_each_label(rows: Rows) -> Floats:
    """About the mean of every class, and the share that a class's own rows have in its mean, on average."""
    return rows.h_within + len(rows.network.bias) / rows.network.count


def without_strongest(rows: Rows) -> Floats:
    """Less the C strongest directions, or half of all if there are not twice as many."""
    geometry = rows.network.unit
    n = min(len(rows.network.bias), geometry.rank // 2)
    strong = (rows.direction @ geometry.eigenvectors[:, :n]) ** 2 @ (1 / geometry.eigenvalues[:n])
    found: Floats = np.maximum(rows.h - strong, 0)
    return found


def with_typical(times: float) -> Leverage:
    return lambda rows: rows.h + times * rows.network.unit.rank / rows.network.count


def times_neighbour(network: Network) -> Floats:
    """The regret with label noise times the distance between directions to the 10th nearest training row."""
    train = network.train.direction.astype(np.float32)
    parts = np.array_split(network.new.direction.astype(np.float32), max(1, len(network.new.norm) // 500))
    nearness = np.concatenate([np.partition(part @ train.T, -10, axis=1)[:, -10] for part in parts])
    found: Floats = regret(noisy(network.new), network.new.h) * np.sqrt(np.maximum(2 - 2 * nearness, 0))
    return found


CANDIDATES: dict[str, dict[str, Candidate]] = {
    "What there was": {"the paper, norm 1": paper, "auto before, no label noise": label_noise(0)},
    "Label noise, a quarter of the entropy": {
        f"{share:g}": label_noise(share) for share in (0.005, 0.01, NOISE, 0.03, 0.05, 0.1, 0.2)
    },
    "Label noise 0.02, another share of the entropy": {
        f"{share:g} log C": label_noise(NOISE, share) for share in (0.2, 0.3, 0.35)
    },
    "A floor under the doubt, no label noise": {f"{share:g} log C": floor(share) for share in (0.01, 0.03, 0.1, 0.3)},
    "Doubt to a power, no label noise": {f"{exponent:g}": power(exponent) for exponent in (0.5, 0.75, 1.5, 2)},
    "Logarithms of leverage and doubt, standardised on the training set": {
        "sum": standardised(np.add),
        "maximum": standardised(np.maximum),
        "log-sum-exp": standardised(np.logaddexp),
    },
    "Mean regret over lengths, no label noise": {f"up to {n:g} times that of auto": mean_up_to(n) for n in (1, 2, 3)},
    "Own norms kept": {
        "leverage of directions, no label noise": own_norms(0, unit),
        "leverage of directions, label noise 0.02": own_norms(NOISE, unit),
        "leverage of embeddings as they are, label noise 0.02": own_norms(NOISE, raw),
    },
    "Another leverage, label noise 0.02": {
        "centred": with_leverage(centred),
        "without the C strongest directions": with_leverage(without_strongest),
        "half of the typical leverage added": with_leverage(with_typical(0.5)),
        "the typical leverage added": with_leverage(with_typical(1)),
        "within classes, of the predicted": with_leverage(of_predicted),
        "within classes, of the nearest": with_leverage(of_nearest),
        "within classes, expected over p": with_leverage(expected),
        "within classes, one for each label": with_leverage(of_each_label),
        "times the distance to the 10th neighbour": times_neighbour,
    },
    "Leverage of no more rows than the peers had": {
        "no label noise": with_leverage(kept, 0),
        "label noise 0.02": with_leverage(kept),
        "label noise 0.02, all rows, leverage multiplied to that size": with_leverage(as_if_kept),
    },
}
