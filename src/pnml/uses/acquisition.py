"""Active learning: select the unlabelled samples to label next, and simulate the gain in accuracy.

The regret of an unlabelled sample depends only on the embeddings labelled so far and on the last layer fitted to them.
It pays with more labelled rows than features. With fewer it is not reliably better than a random choice, and with
``embedding_scale="natural"`` or ``"paper"`` much worse: nearly every sample then lies outside of the span of the
labelled rows, and the regret ranks those first for which the model is *most* confident. If needed, reduce the number
of features, for example by PCA of the unlabelled pool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.backend.arrays import as_array, to_numpy
from pnml.backend.extras import require
from pnml.backend.rows import check_rows
from pnml.core.detector import Detector
from pnml.metrics import as_scores
from pnml.uses._checks import as_integers, as_probabilities

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.core.scaling import EmbeddingScale


def acquire(scores: Any, k: int) -> NDArray[np.int64]:
    """Return the indices of the ``k`` samples of largest score, largest first and ties in order of index.

    Args:
        scores: of the unlabelled samples, larger = label earlier, shape (n,): regrets, entropies, ...
        k: the number of samples to select, at most n.

    >>> acquire([0.2, 0.9, 0.5, 0.9], 3)
    array([1, 3, 2])
    """
    values = as_scores(scores, "scores")
    if not 1 <= k <= len(values):
        raise ValueError(f"k is {k}: expected from 1 to {len(values)}, the number of scores")
    return np.argsort(-values, kind="stable")[:k]


def entropy(probabilities: Any) -> NDArray[np.float64]:
    """Return −Σ p log p in nats of probabilities (n, C), shape (n,): between 0 and log C.

    >>> entropy([[0.5, 0.5], [1.0, 0.0]])
    array([0.69314718, 0.        ])
    """
    p = as_probabilities(probabilities)
    entropies: NDArray[np.float64] = np.sum(p * -np.log(np.where(p > 0, p, 1.0)), axis=1)
    return entropies + 0.0  # turns -0.0 into 0.0


class AcquisitionState(NamedTuple):
    """The input of a strategy.

    Attributes:
        model: the ``LogisticRegression`` fitted to the labelled rows.
        labelled: embeddings of the labelled rows, shape (n, M).
        pool: embeddings of the unlabelled rows, shape (m, M).
        rng: the random generator of the simulation.
    """

    model: Any
    labelled: NDArray[np.float64]
    pool: NDArray[np.float64]
    rng: np.random.Generator


Strategy = Callable[[AcquisitionState], Any]
"""Returns a score of every row of the pool, shape (m,); the rows of largest score are labelled next."""


def by_regret(embedding_scale: EmbeddingScale = "auto") -> Strategy:
    """Return the strategy that scores by the regret of a detector fitted on the labelled rows."""

    def score(state: AcquisitionState) -> Any:
        weight, bias = state.model.coef_, state.model.intercept_
        if len(weight) == 1:  # for two classes scikit-learn stores only the logit of the second
            weight, bias = np.vstack([np.zeros_like(weight), weight]), np.append(0.0, bias)
        return Detector(weight, bias, embedding_scale=embedding_scale).fit(state.labelled).score(state.pool)

    return score


def by_entropy(state: AcquisitionState) -> Any:
    """Score by the entropy of the model's probabilities."""
    return entropy(state.model.predict_proba(state.pool))


def by_confidence(state: AcquisitionState) -> Any:
    """Score by the model's largest probability, negated."""
    return -state.model.predict_proba(state.pool).max(axis=1)


def at_random(state: AcquisitionState) -> Any:
    """Score at random."""
    return state.rng.random(len(state.pool))


def simulate(
    strategy: Strategy, train: tuple[Any, Any], test: tuple[Any, Any], *, start: int, k: int, rounds: int, seed: int
) -> NDArray[np.float64]:
    """Return the test accuracy in percent with ``start``, ``start + k``, ... labels, shape (rounds + 1,).

    At first, ``start`` random training rows are labelled, at least one per class. In each round, scikit-learn's
    ``LogisticRegression`` is fitted to the labelled rows and the strategy selects ``k`` more rows to label. Strategies
    with the same seed start from the same rows.

    Args:
        strategy: such as ``by_regret()`` or :func:`by_entropy`.
        train: embeddings (N, M) and their classes (N,).
        test: embeddings (n, M) and their classes (n,).
        start: the number of initial labels, at least one per class.
        k: the number of labels added per round.
        rounds: the number of rounds.
        seed: of the initial labels and of random strategies.

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
    known = _initial_rows(y, start, rng)
    if start + k * rounds > len(x):
        raise ValueError(f"expected at least start + k * rounds = {start + k * rounds} training rows, got {len(x)}")
    accuracy = []
    for number in range(rounds + 1):
        model = linear.LogisticRegression(max_iter=1000).fit(x[known], y[known])
        accuracy.append(100 * np.mean(model.predict(x_test) == y_test))
        if number < rounds:
            pool = np.setdiff1d(np.arange(len(x)), known)
            chosen = acquire(strategy(AcquisitionState(model, x[known], x[pool], rng)), k)
            known = np.append(known, pool[chosen])
    return np.array(accuracy)


def _labelled_rows(pair: tuple[Any, Any], name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    x = to_numpy(check_rows(as_array(pair[0]), None))
    return x, as_integers(pair[1], f"labels of {name}", len(x))


def _initial_rows(y: NDArray[np.int64], start: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return ``start`` random rows with at least one of every class."""
    order = rng.permutation(len(y))
    classes, first = np.unique(y[order], return_index=True)
    if not max(2, len(classes)) <= start <= len(y):
        raise ValueError(
            f"start is {start}: expected from {max(2, len(classes))} (one label per class) to {len(y)} (all rows)"
        )
    others = np.delete(order, first)
    return np.append(order[first], others[: start - len(classes)])
