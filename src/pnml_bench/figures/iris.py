"""The pNML regret in two dimensions: a single layer on the sepals of the Iris flowers.

The figure has two splits of the flowers into classes c₁ and c₂, those of the published code: setosa against virginica,
every sixth flower, which a line separates, and virginica against versicolor, every fifth, which none does. A feature
that is always 1 gives the layer a bias.

Each split is fitted twice:

* *as published*: a network with two linear hidden units, trained by the stochastic gradient descent of scikit-learn. On
  the inseparable split it stops after a few passes and tells no classes apart, which is why its probability of c₂ is
  below 0.7. Flowers of the grid, not those of the training set, are scaled to norm 1 before their leverage is computed.
* *fitted*: the layer of the theorem, fitted to the end by a pseudo-inverse, with the leverage of flowers as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from pnml.backend.extras import require
from pnml.core import theorem
from pnml.core.correlation import Correlation
from pnml.core.single_layer import SingleLayer
from pnml.core.subspace import Subspace
from pnml_bench.figures._canvas import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Matrix = np.ndarray[Any, Any]
SplitName = Literal["separable", "inseparable"]
Learner = Literal["as published", "fitted"]

SMOOTHING = 0.03
"""The label smoothing of the fitted layer: the maximum-likelihood value for the inseparable split (0.032), rounded."""

_SPLITS: dict[SplitName, tuple[int, int, int, tuple[float, float], tuple[float, float]]] = {
    "separable": (0, 2, 6, (1.0, 0.5), (1.0, 0.5)),
    "inseparable": (2, 1, 5, (1.0, 1.0), (2.0, 2.0)),
}
"""Species of c₁ and of c₂, every how many-th flower is taken, and the margins of the figure below and above, in cm."""

_PROBABILITIES = np.linspace(0.0, 1.0, 21)
_REGRETS: dict[Learner, Matrix] = {"as published": np.linspace(0.0, 0.05, 21), "fitted": np.linspace(0.0, 0.4, 21)}
_RED = "#e8000b"


@dataclass(frozen=True, eq=False)
class Split:
    """Flowers of two classes with two features.

    Attributes:
        features: the names of feature 1 and feature 2.
        classes: the names of c₁ and c₂.
        rows: the measurements in centimetres, shape (N, 2).
        labels: 0 for c₁ and 1 for c₂, shape (N,).
        low, high: the corners of the figure, shape (2,) each.
    """

    features: tuple[str, str]
    classes: tuple[str, str]
    rows: Matrix
    labels: Matrix
    low: Matrix
    high: Matrix


@dataclass(frozen=True, eq=False)
class Landscape:
    """Predictions of a learner on a grid over the two features.

    Attributes:
        feature_1: the grid's columns in centimetres, shape (n,).
        feature_2: the grid's rows in centimetres, shape (n,).
        probability: the ERM probability of class c₂, shape (n, n), indexed [feature 2, feature 1].
        regret: the pNML regret in nats, of the same shape.
    """

    feature_1: Matrix
    feature_2: Matrix
    probability: Matrix
    regret: Matrix


def load_split(name: SplitName) -> Split:
    """Return a split of the Iris data of scikit-learn.

    >>> split = load_split("inseparable")
    >>> split.features, split.classes, split.rows.shape
    (('sepal length (cm)', 'sepal width (cm)'), ('virginica', 'versicolor'), (20, 2))
    """
    if name not in _SPLITS:
        raise ValueError(f"unknown split {name!r}: expected one of {', '.join(map(repr, _SPLITS))}")
    flowers = require("sklearn.datasets", extra="sklearn", what="pnml_bench.figures.iris").load_iris()
    first, second, step, below, above = _SPLITS[name]
    kept = np.flatnonzero(np.isin(flowers.target, (first, second)))[::step]
    rows = flowers.data[kept][:, :2]
    return Split(
        features=(str(flowers.feature_names[0]), str(flowers.feature_names[1])),
        classes=(str(flowers.target_names[first]), str(flowers.target_names[second])),
        rows=rows,
        labels=(flowers.target[kept] == second).astype(np.int64),
        low=rows.min(axis=0) - below,
        high=rows.max(axis=0) + above,
    )


def evaluate(split: Split, learner: Learner, resolution: int = 121) -> Landscape:
    """Fit a learner to a split and evaluate it on a grid of resolution² points.

    >>> landscape = evaluate(load_split("inseparable"), "as published")
    >>> bool(landscape.probability.max() < 0.7)
    True
    """
    feature_1, feature_2 = np.linspace(split.low, split.high, resolution).T
    points = np.stack(np.meshgrid(feature_1, feature_2), axis=-1)
    rows, x = _with_bias(split.rows), _with_bias(points.reshape(-1, 2))
    find = _as_published if learner == "as published" else _fitted
    probability, regret = (values.reshape(points.shape[:2]) for values in find(rows, split.labels, x))
    return Landscape(feature_1, feature_2, probability, regret)


def _as_published(rows: Matrix, labels: Matrix, x: Matrix) -> tuple[Matrix, Matrix]:
    """Return the probabilities of c₂ and the regrets of x by the published code's way of fitting."""
    networks = require("sklearn.neural_network", extra="sklearn", what="pnml_bench.figures.iris")
    network = networks.MLPClassifier(
        (2,), activation="identity", solver="sgd", alpha=0.0, max_iter=10_000, random_state=0
    )
    p = network.fit(rows, labels).predict_proba(x)
    xtg = Subspace.fit(Correlation().update(rows)).xtg(x / np.linalg.norm(x, axis=1, keepdims=True))
    return p[:, 1], np.asarray(theorem.regret(p, xtg))


def _fitted(rows: Matrix, labels: Matrix, x: Matrix) -> tuple[Matrix, Matrix]:
    layer = SingleLayer(SMOOTHING).fit(rows, labels)
    return layer.predict_proba(x)[:, 1], layer.regret(x)


def _with_bias(rows: Matrix) -> Matrix:
    return np.column_stack([rows, np.ones(len(rows))])


def draw() -> Figure:
    """Draw the ERM probability of c₂ and the pNML regret for both splits and both learners, in eight panels.

    The dashed line is the decision boundary.

    >>> [len(row.axes) for row in draw().subfigs]  # four panels with a colour bar each, twice
    [8, 8]
    """
    figure = new_figure(14.4, 7.0)
    rows: Any = figure.subfigures(2, 1)
    for row, name, letters in zip(rows, _SPLITS, ("abcd", "efgh"), strict=True):
        split = load_split(name)
        panels = row.subplots(1, 4, sharex=True, sharey=True)
        for learner, pair, two in zip(
            get_args(Learner), (panels[:2], panels[2:]), (letters[:2], letters[2:]), strict=True
        ):
            landscape = evaluate(split, learner)
            grid = landscape.feature_1, landscape.feature_2
            pair[0].set_title(f"({two[0]}) ERM probability of $c_2$, {learner}", fontsize=9)
            pair[1].set_title(f"({two[1]}) pNML regret, {learner}", fontsize=9)
            probability = pair[0].contourf(*grid, landscape.probability, _PROBABILITIES, cmap="cividis")
            regret = pair[1].contourf(*grid, landscape.regret, _REGRETS[learner], cmap="Blues", extend="max")
            row.colorbar(probability, ax=pair[0], label="probability of $c_2$", ticks=_PROBABILITIES[::4])
            row.colorbar(regret, ax=pair[1], label=r"regret $\Gamma$ (nats)", ticks=_REGRETS[learner][::4])
            for axes in pair:
                _draw_training_data(axes, split, landscape)
        handles, names = panels[0].get_legend_handles_labels()
        row.legend(handles, names, loc="outside upper center", ncols=3, frameon=False, handletextpad=0.4, title=name)
    return figure


def _draw_training_data(axes: Axes, split: Split, landscape: Landscape) -> None:
    """Draw the training flowers, red circles for c₁ and red crosses for c₂, and the decision boundary."""
    grid = landscape.feature_1, landscape.feature_2
    axes.contour(*grid, landscape.probability, [0.5], colors="black", linestyles="dashed")
    for label, marker in enumerate("ox"):
        x, y = split.rows[split.labels == label].T
        name = f"$c_{label + 1}$: {split.classes[label]}"
        axes.plot(x, y, marker, color="white", markersize=5.5, markerfacecolor="none", markeredgewidth=2.4, zorder=3)
        axes.plot(
            x, y, marker, color=_RED, markerfacecolor="none", markersize=5, markeredgewidth=1.2, zorder=4, label=name
        )
    axes.plot([], [], "--", color="black", label="decision boundary")
    axes.set(xlabel=f"feature 1: {split.features[0]}", ylabel=f"feature 2: {split.features[1]}")
