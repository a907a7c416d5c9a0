"""Create and save figures; bins and ticks of logarithmic axes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.extras import require
from pnml.backend.files import atomic_path

if TYPE_CHECKING:
    import os

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Vector = np.ndarray[Any, Any]


def matplotlib_module(name: str) -> Any:
    """Return a module of matplotlib; raise an ``ImportError`` with the install command if it is missing."""
    return require(name, extra="plot", what="pnml_bench.figures")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of the given size in inches, without a window and without pyplot's global state.

    >>> new_figure(3, 2).get_size_inches()
    array([3., 2.])
    """
    figures = matplotlib_module("matplotlib.figure")
    agg = matplotlib_module("matplotlib.backends.backend_agg")
    figure: Figure = figures.Figure(figsize=(width, height), layout="constrained")
    agg.FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, folder: str | os.PathLike[str], name: str) -> list[Path]:
    """Write ``folder/name.png`` (200 dpi) and ``folder/name.svg`` reproducibly, and return both paths.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in save(new_figure(1, 1), folder, "empty")]
    ['empty.png', 'empty.svg']
    """
    matplotlib = matplotlib_module("matplotlib")
    Path(folder).mkdir(parents=True, exist_ok=True)
    written = []
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        target = Path(folder) / f"{name}.{kind}"
        with atomic_path(target) as partial, matplotlib.rc_context({"svg.hashsalt": name}):
            figure.savefig(partial, format=kind, dpi=200, metadata=metadata)
        written.append(target)
    return written


def style_axes(axes: Axes) -> None:
    """Remove the upper and the right border, and draw a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3, linewidth=0.6)


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
    ticker = matplotlib_module("matplotlib.ticker")
    low, high = axis.get_view_interval()
    if high < 100 * low:
        axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(ticker.NullFormatter())
