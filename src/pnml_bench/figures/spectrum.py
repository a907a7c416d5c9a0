"""The spectrum of the training embeddings.

A test embedding in a direction with a small eigenvalue has a large xᵀg and therefore a large regret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pnml.report.labels import label
from pnml_bench.figures._canvas import new_figure, style_axes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

    from pnml_bench.figures._comparison import Vector

_STYLES = (("#1b6ca8", "-"), ("#d95f02", "--"), ("#7b3294", "-."), ("#1b9e77", ":"))


def draw(spectra: Mapping[str, Mapping[str, Vector]]) -> Figure:
    """Draw a panel for each network: the eigenvalues of each training set's mean correlation Σφφᵀ/N, largest first.

    Args:
        spectra: by network and training set, without the directions outside of the span of the training embeddings.

    >>> import numpy as np
    >>> figure = draw({"resnet-34": {"cifar10": np.array([4.5, 0.5])}})
    >>> figure.axes[0].lines[0].get_ydata()
    array([4.5, 0.5])
    """
    figure = new_figure(5.6 * len(spectra), 3.6)
    panels: Any = figure.subplots(1, len(spectra), squeeze=False, sharey=True)[0]
    for axes, (model, of_model) in zip(panels, spectra.items(), strict=True):
        for number, (name, eigenvalues) in enumerate(of_model.items()):
            colour, dashes = _STYLES[number % len(_STYLES)]
            axes.plot(
                range(1, len(eigenvalues) + 1),
                eigenvalues,
                color=colour,
                linestyle=dashes,
                linewidth=1.8,
                label=label(name),
            )
        axes.set_yscale("log")
        axes.set(xlabel="index, largest eigenvalue first")
        axes.set_title(f"Training embeddings of {label(model)}", fontsize=10)
        axes.set_xlim(left=0)
        style_axes(axes)
        axes.legend(frameon=False)
    panels[0].set_ylabel(r"eigenvalue of $\sum\phi\phi^\top/\,N$")
    return figure
