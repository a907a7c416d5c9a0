"""Bins and ticks of scores on a logarithmic axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.extras import require

if TYPE_CHECKING:
    from matplotlib.axis import Axis

Vector = np.ndarray[Any, Any]


def log_edges(scores: Vector, count: int) -> Vector:
    """Return the edges (count + 1,) of ``count`` bins of equal width on a log axis.

    They range from the 0.001 quantile of the positive scores, so that a few scores near 0 do not stretch the axis, to
    the largest score. Use :func:`clip_to` to count scores below in the first bin.

    >>> log_edges(np.array([0.0, 1.0, 100.0]), 2).round(6)
    array([  1.,  10., 100.])
    """
    positive = scores[(scores > 0) & np.isfinite(scores)]
    if positive.size == 0:
        raise ValueError("expected at least one positive finite score to draw on a log axis, got none")
    low, high = float(np.quantile(positive, 0.001, method="lower")), float(positive.max())
    return np.geomspace(low, high if high > low else 10 * low, count + 1)


def clip_to(edges: Vector, scores: Vector) -> Vector:
    """Return the scores clipped to the range of the edges.

    >>> clip_to(np.array([1.0, 10.0]), np.array([0.0, 5.0, 20.0]))
    array([ 1.,  5., 10.])
    """
    return np.clip(scores, edges[0], edges[-1])


def plain_ticks(axis: Axis) -> None:
    """Label a log axis that spans less than a factor of 100 with plain numbers at 1, 2 and 5 times powers of ten."""
    ticker = require("matplotlib.ticker", extra="plot", what="pnml.bench.figures")
    low, high = axis.get_view_interval()
    if high < 100 * low:
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(ticker.NullFormatter())
