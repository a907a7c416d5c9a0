"""How strange the layers of a sample are together: its profile over the depth of the network.

In the bulk of the training rows, the leverage of an early layer varies with what has nothing to do with classes, and
the leverages of layers vary together. So a sample's leverages about the overall means (of its earlier layers, of the
input, of the layers' lengths) are compared with those of training rows, each left out of the fit. With z_l how
far the logarithm of a leverage is above the median, in standard deviations, 0 if it is below, and R the correlation of
these logarithms, ::

    s = zᵀR⁻¹z / (its 90 % quantile) + mean(z) / (its 90 % quantile)

The first term sees a layer that stands out of the others, the second that all layers are strange at once. Only the
*excess* of s over its 90 % quantile is added to the leverage, so that samples like the training set keep the regret of
their embedding. It is divided among the layers as they contribute to s.

All of this was chosen by measurement; see studies/layers/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pnml.backend.arrays import at_least, namespace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.backend.arrays import Array

LEVEL = 0.9
"""The share of training rows, each left out of the fit, about which the layers stay silent."""

SLOPE = 0.2
"""The leverage added for a sample whose s is as far above its limit as the limit is above the median."""

_SMALLEST_SHARE = 0.01  # of a row: leverages below this share of 1/N are taken for equal
_SMALLEST_SPREAD = 0.01  # of the logarithms of leverages, for layers that hardly vary
_SMALLEST_QUANTILE = 0.1  # of mean(z), and of the limit above the median, for hardly any rows
_SMALLEST_SUM = 1e-30  # of the positive parts of s, which are divided by their sum


@dataclass(frozen=True, eq=False)
class Profile:
    """What the leverages of P blocks are compared with, of which the first is that of the embedding.

    Attributes:
        smallest: leverages below are taken for this one.
        centre: the medians of their logarithms, shape (P,).
        spread: the standard deviations of their logarithms, shape (P,).
        mixing: R⁻¹ over the quantile of its form, shape (P, P); 0 for the embedding, where there are other blocks.
        push: what every z adds to s besides, shape (P,).
        limit: of s, above which the blocks add to the leverage.
        reach: how far the limit is above the median of s.
    """

    smallest: float
    centre: NDArray[np.float64]
    spread: NDArray[np.float64]
    mixing: NDArray[np.float64]
    push: NDArray[np.float64]
    limit: float
    reach: float

    @classmethod
    def fit(cls, left_out: NDArray[np.float64], count: int) -> Profile:
        """Learn from the leverages (k, P) of training rows that were left out of a fit on ``count`` rows.

        >>> rows = np.random.default_rng(0).lognormal(size=(1000, 3))
        >>> profile = Profile.fit(rows, 1000)
        >>> bool(abs((profile.parts(rows).sum(axis=1) > profile.limit).mean() - 0.1) < 0.01)
        True
        """
        rows, blocks = left_out.shape
        first = 1 if blocks > 1 else 0
        width = blocks - first
        smallest = _SMALLEST_SHARE / max(count, 1)
        logs = np.log(np.maximum(left_out, smallest))
        centre = np.median(logs, axis=0)
        spread = np.maximum(logs.std(axis=0), _SMALLEST_SPREAD)
        centred = ((logs - logs.mean(axis=0)) / spread)[:, first:]
        correlation = (centred.T @ centred + width * np.eye(width)) / (rows + width)  # P rows more, uncorrelated
        inverse = np.linalg.inv((correlation + correlation.T) / 2)
        z = np.maximum((logs - centre) / spread, 0)
        heard = z[:, first:]
        form = max(float(np.quantile(((heard @ inverse) * heard).sum(axis=1), LEVEL)), _SMALLEST_QUANTILE * width)
        mean = max(float(np.quantile(heard.mean(axis=1), LEVEL)), _SMALLEST_QUANTILE)
        mixing = np.zeros((blocks, blocks))
        mixing[first:, first:] = inverse / form
        push = np.zeros(blocks)
        push[first:] = 1 / (width * mean)
        s = (z * (z @ mixing + push)).sum(axis=1)
        limit = float(np.quantile(s, LEVEL))
        reach = max(limit - float(np.median(s)), _SMALLEST_QUANTILE)
        return cls(smallest, centre, spread, mixing, push, limit, reach)

    @property
    def arrays(self) -> tuple[NDArray[np.float64], ...]:
        """The constants that :func:`shares` takes in the library of its leverages."""
        return self.centre, self.spread, self.mixing, self.push

    def parts(self, h: Array) -> Array:
        """Return what every layer contributes to s, given leverages of NumPy, shape (n, P)."""
        return _parts(h, self, self.arrays)


def excess(h: Array, profile: Profile, constants: tuple[Array, ...]) -> Array:
    """Return what the layers together add to the leverage of n samples, shape (n,).

    Args:
        h: the leverages of the layers, shape (n, P).
        profile: what they are compared with.
        constants: ``profile.arrays`` in the library, on the device and in the dtype of ``h``.
    """
    return _excess(_parts(h, profile, constants), profile)


def shares(h: Array, profile: Profile, constants: tuple[Array, ...]) -> Array:
    """Return what every layer adds, shape (n, P): :func:`excess`, divided in proportion to what is positive in s."""
    parts = _parts(h, profile, constants)
    raised = at_least(parts, 0)
    return raised * (_excess(parts, profile) / at_least(raised.sum(-1), _SMALLEST_SUM))[:, None]


def standardise(h: Array, profile: Profile, constants: tuple[Array, ...]) -> Array:
    """Return z, how far the logarithms of leverages (n, P) are above their medians; 0 if below."""
    centre, spread, *_ = constants
    xp = namespace(h)
    return at_least((xp.log(at_least(h, profile.smallest)) - centre) / spread, 0)


def _excess(parts: Array, profile: Profile) -> Array:
    return at_least((_sum(parts) - profile.limit) * (SLOPE / profile.reach), 0)


def _sum(parts: Array) -> Array:
    return np.add.reduce(parts, axis=-1) if isinstance(parts, np.ndarray) else parts.sum(-1)


def _parts(h: Array, profile: Profile, constants: tuple[Array, ...]) -> Array:
    z = standardise(h, profile, constants)
    return z * (z @ constants[2] + constants[3])
