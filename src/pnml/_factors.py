"""What the kernels of :mod:`pnml.fused` multiply by, brought into the range of float16 by powers of two.

float16 ends at 65,504, and below 2⁻¹⁴ it has the same digits after the point for all numbers, fewer and fewer of any
use. A feature is therefore multiplied by the power of two that makes it about 1 in a typical training row, weight and
whitening are divided by it, and each of the two is multiplied by a power of its own. A power of two costs no digits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml._rows import squares

if TYPE_CHECKING:
    from pnml.subspace import Subspace

Matrix = np.ndarray[Any, Any]

_TALLEST_WEIGHT = 256.0
_SMALLEST_NORMAL = 2.0**-14


class Factors(NamedTuple):
    """A detector's constants as the kernels take them.

    Attributes:
        features: float32 (3, M): what a feature is multiplied by, and how far the rounding of one that is 1 thereafter
            reaches into √h and into the logits, squared, in units of the products.
        whitening: float16 (M, M), a row for each column of the whitening.
        weight: float16 (C, M).
        bias: float32 (C,).
        of_h: what the sum of squared products with the whitening is multiplied by to be h.
        of_logits: what products with the weight are multiplied by to be logits.
        least: what the roundings of the smallest numbers add to the two sums over ``features``.
    """

    features: Matrix
    whitening: Matrix
    weight: Matrix
    bias: Matrix
    of_h: float
    of_logits: float
    least: tuple[float, float]


def factors(weight: Matrix, bias: Matrix, subspace: Subspace, reach: Matrix) -> Factors:
    """Scale and round a detector's constants; ``reach`` (2, M) is that of :class:`~pnml.fused.Fused`."""
    strength = squares(subspace.eigenvectors * np.sqrt(subspace.eigenvalues))
    of_features = 1 / _power_near(np.sqrt(strength / subspace.count))
    whitening, head, reach = subspace.whitening.T / of_features, weight / of_features, reach / of_features
    of_whitening = float(_power_near(math.sqrt(subspace.count)))  # a typical product is 1
    tallest = float(np.abs(head).max())
    of_weight = float(_power_near(_TALLEST_WEIGHT / tallest)) if tallest > 0 else 1.0
    reached = (reach * np.array([[of_whitening], [1.0]])) ** 2
    return Factors(
        np.stack([of_features, *reached]).astype(np.float32),
        (whitening * of_whitening).astype(np.float16, order="C"),
        (head * of_weight).astype(np.float16),
        bias.astype(np.float32),
        of_whitening**-2,
        1 / of_weight,
        (float(_SMALLEST_NORMAL**2 * reached[0].sum()), float(_SMALLEST_NORMAL**2 * reached[1].sum())),
    )


def _power_near(values: Any) -> Any:
    """Give the nearest powers of two."""
    return np.exp2(np.round(np.log2(values)))
