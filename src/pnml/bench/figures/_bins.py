"""Bins and ticks for scores on a log axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.extras import require

if TYPE_CHECKING:
    from matplotlib.axis import Axis

Vector = np.ndarray[Any, Any]


def log_edges(scores: Vector, count: int) -> Vector:
    """Give the edges (count + 1,) of ``count`` bins of equal width on a log axis.

    They reach from the lowest thousandth of the positive scores, so that a few scores near 0 do not stretch the
    picture, to the largest score. Use :func:`into` to put what lies below into the first bin.

    >>> log_edges(np.array([0.0, 1.0, 100.0]), 2).round(6)
    array([  1.,  10., 100.])
    """
    positive = scores[(scores > 0) & np.isfinite(scores)]
    if positive.size == 0:
        raise ValueError("no score is above 0 and finite: there is nothing to draw on a log axis")
    low, high = float(np.quantile(positive, 0.001, method="lower")), float(positive.max())
    return np.geomspace(low, high if high > low else 10 * low, count + 1)


def into(edges: Vector, scores: Vector) -> Vector:
    """Move scores that lie outside of the edges to the outermost ones.

    >>> into(np.array([1.0, 10.0]), np.array([0.0, 5.0, 20.0]))
    array([ 1.,  5., 10.])
    """
    return np.clip(scores, edges[0], edges[-1])


def plain_ticks(axis: Axis) -> None:
    """Label a log axis of less than two powers of ten at 1, 2 and 5, as plain numbers; leave a longer one as it is."""
    ticker = require("matplotlib.ticker", extra="plot", what="pnml.bench.figures")
    low, high = axis.get_view_interval()
    if high < 100 * low:
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(ticker.NullFormatter())
