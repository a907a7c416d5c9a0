"""Active learning: which unlabelled samples to have labelled next, and a simulation that shows what it gains.

The regret of an unlabelled sample needs the embeddings labelled so far and the last layer fitted to them, nothing else.
It needs more labelled rows than features: with fewer, nearly every sample lies outside of their span, and the regret
then ranks those first that the model is *surest* of. Reduce the features (by PCA of the unlabelled pool, say) until the
first labels outnumber them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.backend.arrays import as_array, to_numpy
from pnml.backend.extras import require
from pnml.backend.rows import check_rows
from pnml.core.detector import Detector
from pnml.uses._checks import scores_of, whole_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.core.scaling import EmbeddingScale


def acquire(scores: Any, k: int) -> NDArray[np.int64]:
    """Return the indices of the ``k`` samples of largest score, largest first; of equal scores the first come first.

    Args:
        scores: of the unlabelled samples, larger = more worth a label, shape (n,): regrets, entropies, ...
        k: how many to have labelled, at most n.

    >>> acquire([0.2, 0.9, 0.5, 0.9], 3)
    array([1, 3, 2])
    """
    values = scores_of(scores)
    if not 1 <= k <= len(values):
        raise ValueError(f"k is {k}: expected from 1 to {len(values)}, the number of scores")
    return np.argsort(-values, kind="stable")[:k]


def entropy(probabilities: Any) -> NDArray[np.float64]:
    """Return −Σ p log p in nats of probabilities (n, C), shape (n,): between 0 and log C.

    >>> entropy([[0.5, 0.5], [1.0, 0.0]])
    array([0.69314718, 0.        ])
    """
    p = to_numpy(check_rows(as_array(probabilities), None))
    entropies: NDArray[np.float64] = np.sum(p * -np.log(np.where(p > 0, p, 1.0)), axis=1)
    return entropies + 0.0  # no -0.0


class Situation(NamedTuple):
    """What is known when labels are asked for.

    Attributes:
        model: the ``LogisticRegression`` fitted to the labelled rows.
        labelled: their embeddings, shape (n, M).
        pool: the embeddings that have no label yet, shape (m, M).
        rng: the generator of this simulation, for strategies that draw.
    """

    model: Any
    labelled: NDArray[np.float64]
    pool: NDArray[np.float64]
    rng: np.random.Generator


Strategy = Callable[[Situation], Any]
"""Gives every row of the pool a score, shape (m,): the largest are labelled next."""


def by_regret(embedding_scale: EmbeddingScale = "natural") -> Strategy:
    """Give the strategy that asks for the labels of largest regret, under a detector fitted on the labelled rows."""

    def score(now: Situation) -> Any:
        weight, bias = now.model.coef_, now.model.intercept_
        if len(weight) == 1:  # two classes share one row, whose logit is that of the second
            weight, bias = np.vstack([np.zeros_like(weight), weight]), np.append(0.0, bias)
        return Detector(weight, bias, embedding_scale=embedding_scale).fit(now.labelled).score(now.pool)

    return score


def by_entropy(now: Situation) -> Any:
    """Ask where the model's probabilities have the largest entropy."""
    return entropy(now.model.predict_proba(now.pool))


def by_confidence(now: Situation) -> Any:
    """Ask where the model's largest probability is smallest."""
    return -now.model.predict_proba(now.pool).max(axis=1)


def at_random(now: Situation) -> Any:
    """Ask anywhere."""
    return now.rng.random(len(now.pool))


def simulate(
    strategy: Strategy, train: tuple[Any, Any], test: tuple[Any, Any], *, start: int, k: int, rounds: int, seed: int
) -> NDArray[np.float64]:
    """Return the test accuracy in percent with ``start``, ``start + k``, ... labels, shape (rounds + 1,).

    The labels of the training rows are hidden but for ``start`` of them, drawn at random with every class at least
    once. Then, again and again, scikit-learn's ``LogisticRegression`` is fitted to the labelled rows and the strategy
    has ``k`` more labelled. Two strategies with the same seed start from the same rows.

    Args:
        strategy: such as ``by_regret()`` or :func:`by_entropy`.
        train: embeddings (N, M) and their classes (N,).
        test: embeddings (n, M) and their classes (n,).
        start: how many labels there are at first, at least one per class.
        k: how many are asked for in a round.
        rounds: how often.
        seed: of the first labels, and of strategies that draw.

    >>> rng = np.random.default_rng(0)
    >>> classes = np.repeat([0, 1, 2], 60)
    >>> rows = rng.normal(size=(180, 2)) + 2.0 * np.array([[0, 0], [0, 1], [1, 0]])[classes]
    >>> accuracy = simulate(by_regret(), (rows, classes), (rows, classes), start=9, k=10, rounds=3, seed=0)
    >>> accuracy.shape
    (4,)
    """
    linear = require("sklearn.linear_model", extra="sklearn", what="pnml.uses.acquisition.simulate")
    (x, y), (x_test, y_test) = _labelled_rows(train, "train"), _labelled_rows(test, "test")
    rng = np.random.default_rng(seed)
    known = _first(y, start, rng)
    if start + k * rounds > len(x):
        raise ValueError(f"{start} labels and {rounds} rounds of {k} more need {start + k * rounds} rows, got {len(x)}")
    accuracy = []
    for number in range(rounds + 1):
        model = linear.LogisticRegression(max_iter=1000).fit(x[known], y[known])
        accuracy.append(100 * np.mean(model.predict(x_test) == y_test))
        if number < rounds:
            pool = np.setdiff1d(np.arange(len(x)), known)
            chosen = acquire(strategy(Situation(model, x[known], x[pool], rng)), k)
            known = np.append(known, pool[chosen])
    return np.array(accuracy)


def _labelled_rows(pair: tuple[Any, Any], name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    x = to_numpy(check_rows(as_array(pair[0]), None))
    return x, whole_numbers(pair[1], f"labels of {name}", len(x))


def _first(y: NDArray[np.int64], start: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw ``start`` rows: one of every class, then any."""
    order = rng.permutation(len(y))
    classes, first = np.unique(y[order], return_index=True)
    if not max(2, len(classes)) <= start <= len(y):
        raise ValueError(
            f"start is {start}: expected from {max(2, len(classes))}, one label of every class, to {len(y)}, all rows"
        )
    others = np.delete(order, first)
    return np.append(order[first], others[: start - len(classes)])
