"""The spectrum of the training embeddings.

A test embedding in a direction with a small eigenvalue has a large xᵀg and therefore a large regret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml.bench.figures._canvas import new_figure, style_axes
from pnml.report.labels import label

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

    from pnml.core.subspace import Subspace

_STYLES = (("#1b6ca8", "-"), ("#d95f02", "--"), ("#7b3294", "-."), ("#1b9e77", ":"))


def draw(subspaces: Mapping[str, Subspace], model: str) -> Figure:
    """Draw the eigenvalues of each training set's mean correlation Σφφᵀ/N, largest first.

    Directions outside of the span of the training embeddings are left out.

    >>> import numpy as np
    >>> from pnml import Correlation
    >>> from pnml.core.subspace import Subspace
    >>> rows = np.array([[3.0, 0, 0], [0, 1.0, 0]])
    >>> figure = draw({"cifar10": Subspace.fit(Correlation().update(rows))}, "resnet-34")
    >>> figure.axes[0].lines[0].get_ydata()
    array([4.5, 0.5])
    """
    figure = new_figure(5.6, 3.6)
    axes = figure.subplots()
    for number, (name, subspace) in enumerate(subspaces.items()):
        colour, dashes = _STYLES[number % len(_STYLES)]
        eigenvalues = subspace.spectrum[: subspace.rank]
        text = f"{label(name)} ({subspace.count:,} images)"
        axes.plot(
            range(1, len(eigenvalues) + 1), eigenvalues, color=colour, linestyle=dashes, linewidth=1.8, label=text
        )
    axes.set_yscale("log")
    axes.set(xlabel="index, largest eigenvalue first", ylabel=r"eigenvalue of $\sum\phi\phi^\top/\,N$")
    axes.set_title(f"Training embeddings of {label(model)}", fontsize=10)
    axes.set_xlim(left=0)
    style_axes(axes)
    axes.legend(frameon=False)
    return figure
