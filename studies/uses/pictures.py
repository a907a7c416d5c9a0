"""The pictures of the guide to the other uses of the regret, from the record that studies/uses/run.py wrote.

Example: python -m studies.uses.pictures studies/uses/record.json --out out/figures
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml_bench.figures import new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY, ORANGE, *BLUES = "#777777", "#d95f02", "#1b6ca8", "#7b3294", "#1b9e77"
COLOURS = {"random": GREY, "entropy": "#e6ab02", "1 - largest probability": ORANGE, "p": ORANGE}
Table = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--out", type=Path, default=Path("out/figures"))
    args = parser.parse_args()
    record = json.loads(args.record.read_text(encoding="utf-8"))
    for name, draw in PICTURES.items():
        for path in save(draw(record[name]), args.out, f"uses-{name}"):
            print(path)


def colour(name: str, names: list[str]) -> str:
    """Assign one colour per scale to pNML's curves, in order."""
    ours = [other for other in names if other not in COLOURS]
    return COLOURS[name] if name in COLOURS else BLUES[ours.index(name)]


def curves(table: Table) -> dict[str, Table]:
    return {name: entry for name, entry in table.items() if isinstance(entry, dict) and name != "plan"}


def tidy(axes: Axes) -> None:
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def shown(name: str) -> str:
    return name.replace("1 - ", "1 − ")


def selective(table: Table) -> Figure:
    """Draw risk against coverage, a panel for each mixture of images."""
    figure = new_figure(3.6 * len(table), 3.2)
    panels: Any = figure.subplots(1, len(table), squeeze=False, sharex=True)
    for axes, (mixture, entry) in zip(panels.flat, table.items(), strict=True):
        found = curves(entry)
        for name, of in found.items():
            curve, text = of["curve"], f"{shown(name)}: {of['aurc']:.2f}"
            axes.plot(curve["coverage"], curve["risk"], color=colour(name, [*found]), linewidth=1.6, label=text)
        axes.set_title(mixture, fontsize=9)
        axes.set(xlabel="coverage: images answered (%)", xlim=(0, 100.5), ylim=(0, None))
        tidy(axes)
        axes.legend(fontsize=8, framealpha=0.9, edgecolor="none", title="area (%)", title_fontsize=8)
    panels[0, 0].set_ylabel("risk: answers wrong (%)")
    return figure


def calibration(table: Table) -> Figure:
    """Draw accuracy against confidence, the dots' areas by the number of samples."""
    figure = new_figure(3.0 * len(table), 3.0)
    panels: Any = figure.subplots(1, len(table), squeeze=False, sharex=True, sharey=True)
    for axes, (name, entry) in zip(panels.flat, table.items(), strict=True):
        bins = entry["reliability"]
        share = np.array(bins["samples"]) / sum(bins["samples"])
        axes.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle="--")
        axes.plot(bins["confidence"], bins["accuracy"], color=colour(name, [*table]), linewidth=1)
        axes.scatter(bins["confidence"], bins["accuracy"], s=8 + 150 * share, color=colour(name, [*table]))
        axes.set_title(f"{name}: log-loss {entry['log_loss']:.3f}, ECE {entry['ece_width']:.1f}%", fontsize=9)
        axes.set(xlabel="confidence", xlim=(0, 1.03), ylim=(0, 1.03))
        tidy(axes)
    panels[0, 0].set_ylabel("share right")
    return figure


def acquisition(table: Table) -> Figure:
    """Draw accuracy against the number of labels, with one deviation over the seeds to each side."""
    settings = curves(table)
    figure = new_figure(8.4, 6.2)
    panels: Any = figure.subplots(2, -(-len(settings) // 2))
    for axes, (setting, entry) in zip(panels.flat, settings.items(), strict=True):
        plan, found = entry["plan"], curves(entry)
        labels = plan["start"] + plan["k"] * np.arange(plan["rounds"] + 1)
        for name, curve in found.items():
            mean, deviation = np.array(curve["mean"]), np.array(curve["deviation"])
            hue = colour(name, [*found])
            axes.plot(labels, mean, color=hue, linewidth=1.6, label=shown(name))
            axes.fill_between(labels, mean - deviation, mean + deviation, color=hue, alpha=0.1, linewidth=0)
        if entry["features"] > labels[0]:
            axes.axvline(
                entry["features"], color="black", linewidth=0.8, linestyle=":", label="as many labels as features"
            )
        axes.set_title(f"{setting}, {entry['seeds']} seeds", fontsize=9)
        axes.set(xlabel="labels", ylabel="test accuracy (%)")
        tidy(axes)
    handles, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    return figure


def adversarial(table: Table) -> Figure:
    """Draw the AUROC of every score for every attack."""
    attacks = curves(table)
    figure = new_figure(4.8, 3.2)
    axes = figure.subplots()
    names = [*next(iter(attacks.values()))["auroc"]]
    for number, name in enumerate(names):
        heights = [entry["auroc"][name] for entry in attacks.values()]
        places = np.arange(len(attacks)) + 0.12 * (number - (len(names) - 1) / 2)
        axes.vlines(places, 50, heights, color=colour(name, names), linewidth=1)
        axes.plot(places, heights, "o", color=colour(name, names), label=shown(name))
    axes.axhline(50, color="black", linewidth=0.8, linestyle="--")
    axes.set_xticks(range(len(attacks)), [attack.upper() for attack in attacks])
    axes.set(ylabel="AUROC, attacked against clean (%)", ylim=(0, 101))
    tidy(axes)
    axes.legend(fontsize=8, framealpha=0.9, edgecolor="none")
    return figure


PICTURES = {
    "selective": selective,
    "calibration": calibration,
    "acquisition": acquisition,
    "adversarial": adversarial,
}


if __name__ == "__main__":
    main()
