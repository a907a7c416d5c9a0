"""What the pNML regret looks like in two dimensions: a single layer on two features of the Iris flowers.

Two splits of the flowers into classes c₁ and c₂ are shown:

* *separable*: setosa against versicolor, by sepal length and width. A line parts them.
* *inseparable*: versicolor against the two other species, by sepal length and petal width. Versicolor lies between
  setosa and virginica and overlaps the latter, so no line parts them and the layer stays unsure everywhere. (Versicolor
  against virginica alone overlap too little for that: whichever two features are taken, logistic regression is over
  95% sure in some corner of the picture.)

The layer has no bias, so its decision boundary passes through the origin: each feature is centred on its training mean,
and divided by its standard deviation, before the layer sees it. The pictures show centimetres.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pnml.backend.extras import require
from pnml.bench.figures._canvas import blank
from pnml.core.single_layer import SingleLayer

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Matrix = np.ndarray[Any, Any]
SplitName = Literal["separable", "inseparable"]

SMOOTHING = 0.12
"""The label smoothing that makes the training labels of the inseparable split likeliest (0.1175, rounded); for both."""

MARGIN = 0.1
"""How far the pictures reach beyond the training data on every side, as a share of its range."""

_SPLITS: dict[SplitName, tuple[tuple[int, int], tuple[int, ...], tuple[int, ...]]] = {
    "separable": ((0, 1), (0,), (1,)),
    "inseparable": ((0, 3), (1,), (0, 2)),
}
"""Columns of the two features, species of class c₁, species of class c₂."""

_PROBABILITIES = np.linspace(0.0, 1.0, 21)
_REGRETS = np.linspace(0.0, 0.1, 21)
_RED = "#e8000b"


@dataclass(frozen=True, eq=False)
class Split:
    """Flowers of two classes by two features.

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
    """What the fitted layer says at every point of a grid over the split's features.

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
    """Take a split from scikit-learn's bundled copy of the Iris set.

    >>> split = load_split("separable")
    >>> split.features, split.classes, split.rows.shape
    (('sepal length (cm)', 'sepal width (cm)'), ('setosa', 'versicolor'), (100, 2))
    """
    if name not in _SPLITS:
        raise ValueError(f"no split {name!r}: choose one of {', '.join(map(repr, _SPLITS))}")
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
    """Fit a :class:`~pnml.SingleLayer` to a split and ask it at resolution² points around the training data.

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
    """Draw four panels: the ERM probability of c₂ and the pNML regret, of the separable and the inseparable split.

    The dashed line is the decision boundary, where both classes are equally probable.

    >>> [len(row.axes) for row in draw().subfigs]  # two panels with a colour bar each, twice
    [4, 4]
    """
    figure = blank(7.6, 7.0)
    rows: Any = figure.subfigures(2, 1)
    for row, name, letters in zip(rows, _SPLITS, ("ab", "cd"), strict=True):
        split = load_split(name)
        seen = evaluate(split)
        left, right = row.subplots(1, 2)
        left.set_title(f"({letters[0]}) ERM probability of $c_2$, {name}", fontsize=10)
        right.set_title(f"({letters[1]}) pNML regret, {name}", fontsize=10)
        probability = left.contourf(seen.feature_1, seen.feature_2, seen.probability, _PROBABILITIES, cmap="cividis")
        regret = right.contourf(seen.feature_1, seen.feature_2, seen.regret, _REGRETS, cmap="Blues")
        row.colorbar(probability, ax=left, label="probability of $c_2$", ticks=_PROBABILITIES[::4])
        row.colorbar(regret, ax=right, label=r"regret $\Gamma$ (nats)", ticks=_REGRETS[::4])
        for axes in (left, right):
            _mark(axes, split, seen)
        handles, names = left.get_legend_handles_labels()
        row.legend(handles, names, loc="outside upper center", ncols=3, frameon=False, handletextpad=0.4)
    return figure


def _mark(axes: Axes, split: Split, seen: Landscape) -> None:
    """Put the training flowers on a panel, red circles for c₁ and red crosses for c₂, and the decision boundary."""
    axes.contour(seen.feature_1, seen.feature_2, seen.probability, [0.5], colors="black", linestyles="dashed")
    for label, marker in enumerate("ox"):
        x, y = split.rows[split.labels == label].T
        name = f"$c_{label + 1}$: {split.classes[label]}"
        axes.plot(x, y, marker, color="white", markersize=5.5, markerfacecolor="none", markeredgewidth=2.4, zorder=3)
        axes.plot(
            x, y, marker, color=_RED, markerfacecolor="none", markersize=5, markeredgewidth=1.2, zorder=4, label=name
        )
    axes.plot([], [], "--", color="black", label="decision boundary")
    axes.set(xlabel=f"feature 1: {split.features[0]}", ylabel=f"feature 2: {split.features[1]}")
