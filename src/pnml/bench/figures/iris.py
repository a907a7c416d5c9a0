"""The pNML regret in two dimensions: a single layer on two features of the Iris data.

The figure shows two splits of the flowers into classes c₁ and c₂:

* *separable*: setosa against versicolor, by sepal length and width. They are linearly separable.
* *inseparable*: versicolor against the two other species, by sepal length and petal width. Versicolor lies between
  setosa and virginica and overlaps virginica, so that every prediction is uncertain. (Versicolor against virginica
  alone overlap too little: with any two features, logistic regression has a probability above 95% in some corner of
  the figure.)

The layer has no bias, so each feature is standardised with its training mean and standard deviation first. The axes
show centimetres.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pnml.backend.extras import require
from pnml.bench.figures._canvas import new_figure
from pnml.core.single_layer import SingleLayer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Matrix = np.ndarray[Any, Any]
SplitName = Literal["separable", "inseparable"]

SMOOTHING = 0.12
"""The label smoothing of both splits: the maximum-likelihood value for the inseparable split (0.1175), rounded."""

MARGIN = 0.1
"""The margin of the axes around the training data, as a share of its range."""

_SPLITS: dict[SplitName, tuple[tuple[int, int], tuple[int, ...], tuple[int, ...]]] = {
    "separable": ((0, 1), (0,), (1,)),
    "inseparable": ((0, 3), (1,), (0, 2)),
}
"""Columns of the two features, species of c₁, species of c₂."""

_PROBABILITIES = np.linspace(0.0, 1.0, 21)
_REGRETS = np.linspace(0.0, 0.1, 21)
_RED = "#e8000b"


@dataclass(frozen=True, eq=False)
class Split:
    """Flowers of two classes with two features.

    Attributes:
        features: the names of feature 1 and feature 2.
        classes: the names of c₁ and c₂.
        rows: the measurements in centimetres, shape (N, 2).
        labels: 0 for c₁ and 1 for c₂, shape (N,).
    """

    features: tuple[str, str]
    classes: tuple[str, str]
    rows: Matrix
    labels: Matrix

    def standardise(self, points: Matrix) -> Matrix:
        """Centre and scale points (n, 2) by the mean and standard deviation of the training rows."""
        return np.asarray((points - self.rows.mean(axis=0)) / self.rows.std(axis=0))


@dataclass(frozen=True, eq=False)
class Landscape:
    """Predictions of the fitted layer on a grid over the two features.

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

    >>> split = load_split("separable")
    >>> split.features, split.classes, split.rows.shape
    (('sepal length (cm)', 'sepal width (cm)'), ('setosa', 'versicolor'), (100, 2))
    """
    if name not in _SPLITS:
        raise ValueError(f"unknown split {name!r}: expected one of {', '.join(map(repr, _SPLITS))}")
    flowers = require("sklearn.datasets", extra="sklearn", what="pnml.bench.figures.iris").load_iris()
    columns, first, second = _SPLITS[name]
    kept = np.isin(flowers.target, first + second)
    feature_1, feature_2 = (str(flowers.feature_names[column]) for column in columns)
    c1, c2 = (" or ".join(str(flowers.target_names[species]) for species in group) for group in (first, second))
    return Split(
        features=(feature_1, feature_2),
        classes=(c1, c2),
        rows=flowers.data[kept][:, columns],
        labels=np.isin(flowers.target[kept], second).astype(np.int64),
    )


def evaluate(split: Split, resolution: int = 121) -> Landscape:
    """Fit a :class:`~pnml.SingleLayer` to a split and evaluate it on a grid of resolution² points.

    >>> landscape = evaluate(load_split("inseparable"))
    >>> bool(landscape.probability.max() < 0.7)
    True
    """
    layer = SingleLayer(SMOOTHING).fit(split.standardise(split.rows), split.labels)
    low, high = split.rows.min(axis=0), split.rows.max(axis=0)
    margin = MARGIN * (high - low)
    feature_1, feature_2 = np.linspace(low - margin, high + margin, resolution).T
    points = np.stack(np.meshgrid(feature_1, feature_2), axis=-1)
    x = split.standardise(points.reshape(-1, 2))
    shape = points.shape[:2]
    return Landscape(feature_1, feature_2, layer.predict_proba(x)[:, 1].reshape(shape), layer.regret(x).reshape(shape))


def draw() -> Figure:
    """Draw the ERM probability of c₂ and the pNML regret for both splits, in four panels.

    The dashed line is the decision boundary.

    >>> [len(row.axes) for row in draw().subfigs]  # two panels with a colour bar each, twice
    [4, 4]
    """
    figure = new_figure(7.6, 7.0)
    rows: Any = figure.subfigures(2, 1)
    for row, name, letters in zip(rows, _SPLITS, ("ab", "cd"), strict=True):
        split = load_split(name)
        landscape = evaluate(split)
        grid = landscape.feature_1, landscape.feature_2
        left, right = row.subplots(1, 2)
        left.set_title(f"({letters[0]}) ERM probability of $c_2$, {name}", fontsize=10)
        right.set_title(f"({letters[1]}) pNML regret, {name}", fontsize=10)
        probability = left.contourf(*grid, landscape.probability, _PROBABILITIES, cmap="cividis")
        regret = right.contourf(*grid, landscape.regret, _REGRETS, cmap="Blues")
        row.colorbar(probability, ax=left, label="probability of $c_2$", ticks=_PROBABILITIES[::4])
        row.colorbar(regret, ax=right, label=r"regret $\Gamma$ (nats)", ticks=_REGRETS[::4])
        for axes in (left, right):
            _draw_training_data(axes, split, landscape)
        handles, names = left.get_legend_handles_labels()
        row.legend(handles, names, loc="outside upper center", ncols=3, frameon=False, handletextpad=0.4)
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
