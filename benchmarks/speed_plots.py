"""Growth curves of a speed record: seconds to fit by features, rows scored a second by rows, features and classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from matplotlib.axes import Axes

    Point = tuple[float, float, float, float]

COLOURS = {
    "pnml, float64": "#0b5d7a",
    "pnml, float32": "#3fa7d6",
    "pnml, float32, compiled": "#9ad4f0",
    "pytorch-ood PNML": "#d1495b",
    "pytorch-ood PNML, 1000 rows at a time": "#e8a0aa",
    "the paper's procedure": "#8d5a97",
    "pytorch-ood ViM": "#66a182",
    "pytorch-ood Mahalanobis": "#c08a2b",
    "pytorch-ood KNN": "#777777",
    "scikit-learn EmpiricalCovariance": "#b0b0b0",
}


def draw(record: dict[str, Any], folder: Path) -> None:
    """Write speed-fit.png and speed-score.png."""
    folder.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    most = max(one["count"] for one in record["fit"])
    runs = [one for one in record["fit"] if one["count"] == most]
    curves(axes, runs, "width", lambda result: result["seconds"])
    axes.set(xlabel="features", ylabel="seconds", title=f"Fitting {most:,} embeddings")
    figure.legend(loc="outside lower center", ncols=2, fontsize=7, frameon=False)
    figure.savefig(folder / "speed-fit.png", dpi=150)
    plt.close(figure)

    middle = middle_of(record)
    figure, panels = plt.subplots(1, 3, figsize=(12, 4.4), sharey=True, layout="constrained")
    for axes, vary, label in zip(panels, ("rows", "width", "classes"), ("rows", "features", "classes"), strict=True):
        fixed = [key for key in ("width", "classes") if key != vary]
        chosen = [one for one in record["score"] if all(one[key] == middle[key] for key in fixed)]
        if vary != "rows":  # one run per point: that whose number of rows is nearest to the usual one
            chosen.sort(key=lambda one: -abs(one["rows"] - middle["rows"]))
            chosen = list({one[vary]: one for one in chosen}.values())
        curves(axes, chosen, vary, rates)
        axes.set(xlabel=label, title=f"by {label}")
    panels[0].set_ylabel("rows a second")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    figure.savefig(folder / "speed-score.png", dpi=150)
    plt.close(figure)


def middle_of(record: dict[str, Any]) -> dict[str, int]:
    """Give the rows, features and classes around which the grid varies: those measured most often."""
    values = {key: [one[key] for one in record["score"]] for key in ("rows", "width", "classes")}
    return {key: max(seen, key=seen.count) for key, seen in values.items()}


def rates(result: dict[str, Any]) -> dict[str, float]:
    """Turn seconds into rows a second, quartiles included."""
    seconds, rows = result["seconds"], result["rows"]
    return {
        "median": rows / seconds["median"],
        "lower": rows / seconds["upper"],
        "upper": rows / seconds["lower"],
    }


def curves(
    axes: Axes, runs: Iterable[dict[str, Any]], by: str, of: Callable[[dict[str, Any]], dict[str, float]]
) -> None:
    """Draw one line per contender, with its quartiles."""
    points: dict[str, list[Point]] = {}
    for run in runs:
        for name, result in run["results"].items():
            if name in COLOURS:
                spread = of(result)
                points.setdefault(name, []).append((run[by], spread["median"], spread["lower"], spread["upper"]))
    for name, line in points.items():
        at, middle, low, high = zip(*sorted(line), strict=True)
        bold = name.startswith("pnml")
        axes.plot(at, middle, "o-", color=COLOURS[name], label=name, lw=2 if bold else 1, ms=4 if bold else 3)
        axes.fill_between(at, low, high, color=COLOURS[name], alpha=0.2, lw=0)
    axes.set(xscale="log", yscale="log")
    axes.grid(visible=True, which="major", alpha=0.3)
