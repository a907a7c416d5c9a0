"""How training rows scatter about the means of their classes, with a ridge that left-out rows ask for.

A learner that gives a new sample x to class c moves the mean of that class, and nothing else of what it knows about
classes. In the model with one mean per class and slopes common to all, the leverage of x is ::

    h(x) = (x − μ_c)ᵀ (W + λI)⁻¹ (x − μ_c),        W = Σ (x_n − μ_c(n)) (x_n − μ_c(n))ᵀ

but for the share 1/n_c of the mean itself, which says nothing about x. With all rows in one class it is the leverage
about the overall mean.

**The means** are known from few rows, or none: each is that of its rows and of one more at the overall mean.

**The ridge** λ is a prior on the weights, the luckiness of a learner. Without it every new row lies outside of the span
of fewer rows than features, and counts as infinitely strange. It is chosen for the training rows to be most likely,
each under the normal distribution of the others: ::

    minimise over λ:   log det (W + λI) + N · mean over n of h₋(x_n)

where h₋, the leverage of a row that was left out, is free. With many rows λ fades; with directions in which training
rows hardly vary it stays below their variance, because such directions make every other row more likely.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import at_most
from pnml.backend.decompositions import triangular_factor
from pnml.core.subspace import eigendecompose

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.backend.arrays import Array

PRIOR_ROWS = 1.0
"""How many rows at the overall mean every class is given."""

FEATURE_NOISE = 2.0**-16
"""The share of their length that features of a network, computed in float32 on one machine or another, may owe to
rounding: no smaller variation is taken for a property of the training rows."""

_RIDGES = 16  # candidates, evenly spaced in their logarithms


@dataclass(frozen=True, eq=False)
class Scatter:
    """The scatter of the training rows of one layer about the means of their classes.

    Attributes:
        means: of the classes, shape (C, M).
        eigenvalues: of W, without the ridge, descending, shape (M,).
        eigenvectors: the matching columns, shape (M, M).
        ridge: λ.
        row_shares: n/(n − 1) of each class, one row of the overall mean included, shape (C,): how much farther a row is
            from the mean of its class without it, and a little more as that moves the overall mean.
        count: the number N of rows.
        typical: the leverages of some training rows, each left out of the fit, in their order, shape (k,).
        units: what every feature is divided by before, shape (M,): 1, or its standard deviation.
    """

    means: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]
    eigenvectors: NDArray[np.float64]
    ridge: float
    row_shares: NDArray[np.float64]
    count: int
    typical: NDArray[np.float64]
    units: NDArray[np.float64]

    @classmethod
    def fit(
        cls,
        matrix: NDArray[Any],
        counts: NDArray[Any],
        sums: NDArray[Any],
        rows: NDArray[Any],
        classes: NDArray[Any],
        *,
        scaled: bool = False,
    ) -> Scatter:
        """Decompose the scatter and choose the ridge.

        Args:
            matrix: Σxxᵀ of the training rows, shape (M, M).
            counts: how many rows each class has, shape (C,).
            sums: Σx of each class, shape (C, M).
            rows: some of the training rows, shape (k, M).
            classes: theirs, shape (k,).
            scaled: measure every feature in its standard deviations, so that the ridge does not depend on its unit.

        >>> rng = np.random.default_rng(0)
        >>> x = 1 + 0.01 * rng.normal(size=(50, 200))
        >>> scatter = Scatter.fit(x.T @ x, np.array([50]), x.sum(axis=0)[None], x, np.zeros(50, dtype=int))
        >>> new = 1 + 0.01 * rng.normal(size=(50, 200)) - scatter.means
        >>> bool(abs(np.median(((new @ scatter.whitening) ** 2).sum(axis=1)) / np.median(scatter.typical) - 1) < 0.1)
        True
        """
        total = int(counts.sum())
        means, row_shares = _class_means(counts, sums)
        within = _between(counts, sums, means)
        np.subtract(matrix, within, out=within)
        centred = rows.astype(np.float64) - means[classes]
        lowest = FEATURE_NOISE**2 * max(float(np.trace(matrix)), total)  # N for rows of norm 1, and for rows of zeros
        units = np.ones(len(matrix))
        if scaled:
            units = _units(np.diagonal(within), np.diagonal(matrix), total)
            within /= units[:, None] * units
            centred /= units
            lowest = FEATURE_NOISE**2 * total
        eigenvalues, eigenvectors = eigendecompose(within)
        squares = (centred @ eigenvectors) ** 2
        ridge = choose_ridge(eigenvalues, squares, row_shares[classes], total, lowest=lowest)
        typical = left_out(squares @ (1 / (eigenvalues + ridge)), row_shares[classes])
        return cls(means, eigenvalues, eigenvectors, ridge, row_shares, total, typical, units)

    @cached_property
    def whitening(self) -> NDArray[np.float64]:
        """The factor T of (W + λI)⁻¹ = TTᵀ, (M, M), upper triangular: the k-th leverage coordinate needs k features."""
        factor = (self.eigenvectors / np.sqrt(self.eigenvalues + self.ridge)).T
        return np.asarray(triangular_factor(factor[:, ::-1])[::-1, ::-1].T / self.units[:, None])


def _class_means(counts: NDArray[Any], sums: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the means of the classes, one row at the overall mean included, and their shares of a row."""
    overall = sums.sum(axis=0) / max(int(counts.sum()), 1)
    known, total = counts + PRIOR_ROWS, int(counts.sum())
    # The overall mean, too, moves away from a row that is left out. Of a class without rows nobody asks.
    moved = PRIOR_ROWS / max(total - 1, 1e-3)
    row_shares = (known + moved) / np.maximum(known - 1, 1e-3)
    return (sums + PRIOR_ROWS * overall) / known[:, None], row_shares


def _between(counts: NDArray[Any], sums: NDArray[Any], means: NDArray[Any]) -> NDArray[np.float64]:
    """Return what Σxxᵀ is larger than Σ(x − μ)(x − μ)ᵀ."""
    cross = sums.T @ means
    between: NDArray[np.float64] = cross + cross.T
    between -= (means * counts[:, None]).T @ means
    return between


def _units(within: NDArray[Any], matrix: NDArray[Any], count: int) -> NDArray[np.float64]:
    """Return the standard deviations of features; of one that never varied, what rounding may make of its size."""
    sizes = np.sqrt(matrix / count)
    sizes = np.where(sizes > 0, sizes, sizes.max() or 1.0)
    return np.asarray(np.maximum(np.sqrt(np.maximum(within, 0) / count), FEATURE_NOISE * sizes))


def left_out(h: Array, row_shares: Array) -> Array:
    """Turn leverages of training rows about the means of their classes into what they would be without each row.

    Without a row, the mean moves away from it by the factor a = n/(n − 1) of their distance, and W loses a times the
    product of that distance: h becomes a² h / (1 − a h), or infinite where the row was the only one in its direction.
    """
    spread = at_most(row_shares * h, 1 - 1e-12)
    return row_shares * spread / (1 - spread)


def choose_ridge(
    eigenvalues: NDArray[Any], squares: NDArray[Any], row_shares: NDArray[Any], count: int, *, lowest: float
) -> float:
    """Return the ridge under which training rows are most likely, each given the others.

    Args:
        eigenvalues: of W, shape (M,).
        squares: of the coordinates of some training rows about their class means, in the eigenbasis, shape (k, M).
        row_shares: see :func:`left_out`, shape (k,).
        count: the number N of training rows.
        lowest: the smallest ridge to consider.
    """
    highest = 10 * float(eigenvalues[0])
    if not highest > lowest:
        return max(lowest, 1e-300)
    ridges = np.geomspace(lowest, highest, _RIDGES)
    inverse = 1 / (eigenvalues[:, None] + ridges)  # (M, ridges)
    strange = left_out(squares @ inverse, row_shares[:, None]).mean(axis=0)
    return float(ridges[np.argmin(count * strange - np.log(inverse).sum(axis=0))])
