"""Create empty figures and save them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pnml.backend.extras import require
from pnml.backend.files import atomic_path

if TYPE_CHECKING:
    import os

    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of the given size in inches, without a window and without pyplot's global state.

    >>> new_figure(3, 2).get_size_inches()
    array([3., 2.])
    """
    figures = require("matplotlib.figure", extra="plot", what="pnml.bench.figures")
    agg = require("matplotlib.backends.backend_agg", extra="plot", what="pnml.bench.figures")
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
    matplotlib = require("matplotlib", extra="plot", what="pnml.bench.figures")
    Path(folder).mkdir(parents=True, exist_ok=True)
    written = []
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
        target = Path(folder) / f"{name}.{kind}"
        with atomic_path(target) as partial, matplotlib.rc_context({"svg.hashsalt": name}):
            figure.savefig(partial, format=kind, dpi=200, metadata=metadata)
        written.append(target)
    return written
