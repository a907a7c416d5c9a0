"""The pictures of the concepts: a regret and how it grows, leverage, p-value and threshold.

Everything is computed here, on points of two dimensions or on scikit-learn's digits. It takes seconds.

Example: python -m studies.pictures.concepts --out out/figures
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import pnml
from pnml_bench.figures import new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

BLUE, ORANGE, GREY = "#1f5fa6", "#e6862c", "#8a8a8a"
CLASSES = ("cat", "dog", "frog")
PROBABILITIES = np.array([0.7, 0.25, 0.05])
FAMILIAR, STRANGE = 0.05, 0.7  # xᵀg of the two samples
RATE = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/figures"))
    args = parser.parse_args()
    drawings = {
        "concept-regret": regret_bars(),
        "concept-regret-growth": regret_growth(),
        "concept-leverage": leverage(),
        "concept-threshold": threshold(),
        "concept-rates": rates(),
    }
    for name, figure in drawings.items():
        for path in save(figure, args.out, name):
            print(path)


def regret_bars() -> Figure:
    """Draw the model's probabilities beside what it would say after learning each label, for two samples."""
    figure = new_figure(7.2, 3.2)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, xtg, name in zip(panels, (FAMILIAR, STRANGE), ("a familiar sample", "a strange sample"), strict=True):
        genie = pnml.genie(PROBABILITIES[None], np.array([xtg]))[0]
        value = pnml.regret(PROBABILITIES[None], np.array([xtg]))[0]
        places = np.arange(len(CLASSES))
        before = axes.bar(places - 0.2, PROBABILITIES, 0.38, color=GREY, label="what the model says")
        after = axes.bar(places + 0.2, genie, 0.38, color=ORANGE, label="after learning that this is the label")
        for bars in (before, after):
            axes.bar_label(bars, fmt="%.2f", fontsize=8, padding=1)
        axes.set_xticks(places, CLASSES)
        axes.set_title(
            f"{name}: orange bars sum to {genie.sum():.2f}\nregret log {genie.sum():.2f} = {value:.2f} nats",
            fontsize=10,
        )
        axes.set_ylim(0, 1)
        plain(axes)
    panels[0].set_ylabel("probability")
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=9
    )
    return figure


def regret_growth() -> Figure:
    """Draw the regret against how little the training set says, for models that are more and less certain."""
    figure = new_figure(7.0, 3.6)
    axes = figure.subplots()
    xtg = np.linspace(0, 1, 201)
    for largest, colour in ((0.4, "#c6dbef"), (0.7, "#6baed6"), (0.95, "#2171b5"), (0.999, "#08306b")):
        rest = (1 - largest) / 2
        regret = pnml.regret(np.tile([largest, rest, rest], (len(xtg), 1)), xtg)
        axes.plot(xtg, regret, color=colour, label=f"{largest:g}")
    axes.legend(title="largest of three\nprobabilities", frameon=False, fontsize=9, title_fontsize=9)
    axes.set(
        xlabel="how little the training set says about the sample (xᵀg)", ylabel="regret (nats)", xlim=(0, 1), ylim=0
    )
    plain(axes)
    return figure


def leverage() -> Figure:
    """Draw training points of two dimensions, lines of equal leverage, and two new points at equal distances."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(300, 2)) @ np.array([[2.0, 1.0], [0.0, 0.35]])
    subspace = pnml.Subspace.fit(pnml.Correlation().update(points))
    along = np.array([2.0, 1.0]) / np.sqrt(5)
    new = 3.2 * np.array([along, [-along[1], along[0]]])
    across, up = np.meshgrid(np.linspace(-6.5, 6.5, 261), np.linspace(-4.2, 4.2, 169))
    lines = subspace.leverage(np.column_stack([across.ravel(), up.ravel()])).reshape(across.shape)
    figure = new_figure(7.0, 4.2)
    axes = figure.subplots()
    drawn = axes.contour(across, up, lines, [0.01, 0.03, 0.1, 0.3, 1.0], colors=GREY, linewidths=0.8)
    axes.clabel(drawn, fmt="%g", fontsize=8)
    axes.plot(*points.T, ".", color=BLUE, markersize=4, label="training rows")
    for point, found in zip(new, subspace.leverage(new), strict=True):
        axes.plot(*point, "o", color=ORANGE, markersize=9)
        axes.annotate(f"h = {found:.2f}", point, (12, -14), textcoords="offset points", fontsize=11)
    axes.plot([], [], "o", color=ORANGE, label="two new samples, equally far from the origin")
    axes.set(aspect="equal", xticks=[], yticks=[], xlim=(-6.5, 6.5), ylim=(-4.2, 4.2))
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def threshold() -> Figure:
    """Draw the regrets of known digits with the threshold, and those of unknown ones."""
    bunch = load_digits()
    images, labels = bunch.data / 16, bunch.target
    known = np.random.default_rng(0).permutation(np.flatnonzero(labels < 8))
    train, held_out = known[:700], known[700:]
    model = LogisticRegression(max_iter=2000).fit(images[train], labels[train])
    detector = pnml.Detector(model.coef_, model.intercept_).fit(images[train])
    found = detector.calibrate(images[held_out], false_alarm_rate=RATE)
    figure = new_figure(6.6, 3.6)
    draw_regrets(figure.subplots(), found, detector.score(images[labels >= 8]))
    return figure


def draw_regrets(axes: Axes, found: Any, unknown: NDArray[np.float64]) -> None:
    """Draw histograms of both kinds of regrets, and one unknown digit with its p-value."""
    edges = np.linspace(0, float(unknown.max()), 41)
    axes.hist(found.scores, edges, color=BLUE, alpha=0.75, density=True, label=f"{found.count} known digits, held out")
    axes.hist(unknown, edges, color=ORANGE, alpha=0.6, density=True, label=f"{len(unknown)} unknown digits, 8 and 9")
    top = axes.get_ylim()[1]
    axes.axvline(found.value, color="black", linewidth=1.2)
    axes.text(
        found.value,
        top,
        f"threshold: {RATE:.0%} of the known \ndigits lie to the right ",
        va="top",
        ha="right",
        fontsize=8,
    )
    one = float(np.median(unknown))
    share = float(found.p_value(np.array([one]))[0])
    axes.annotate(
        f"p-value {share:.2f}: {share:.0%} of the\nknown digits are as strange",
        (one, 0),
        (one + 0.1, 0.45 * top),
        fontsize=8,
        arrowprops={"arrowstyle": "->", "color": "black"},
    )
    axes.set(xlabel="regret (nats)", yticks=[])
    axes.legend(frameon=False, fontsize=8, loc="upper right")
    plain(axes)


def rates() -> Figure:
    """Draw where the false-alarm rate lies, for calibration sets of three sizes."""
    figure = new_figure(6.0, 2.8)
    axes = figure.subplots()
    shares = np.linspace(0, 0.12, 400)
    for count, colour in ((100, "#9ecae1"), (400, "#4292c6"), (2000, "#08306b")):
        flagged = int(np.floor(RATE * (count + 1)))
        density = stats.beta(flagged, count + 1 - flagged).pdf(shares)
        axes.plot(100 * shares, density, color=colour, label=f"{count:,} calibration samples")
    axes.axvline(100 * RATE, color="black", linewidth=0.8, linestyle=":")
    axes.set(xlabel="false alarms (%), where 5% were asked for", yticks=[])
    axes.legend(frameon=False, fontsize=9)
    plain(axes)
    return figure


def plain(axes: Axes) -> None:
    """Remove the upper and the right border."""
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main()
