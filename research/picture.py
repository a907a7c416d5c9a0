"""Draw docs/images/near-ood.png: ``python research/picture.py embeddings/densenet-bc-100_cifar100.safetensors ...``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from candidates import CANDIDATES
from study import Study

from pnml.bench.leaderboard import NEAR
from pnml.core.scaling import balanced_length
from pnml.metrics import auroc
from pnml.report.labels import label

if TYPE_CHECKING:
    from candidates import Score

OUT = Path(__file__).parents[1] / "docs" / "images" / "near-ood.png"
NEAR_COLOUR, FAR_COLOUR, MARK = "#c2410c", "#0f766e", "#475569"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    files = parser.parse_args().files
    figure, axes = plt.subplots(1, len(files), figsize=(4.2 * len(files), 3.6), sharey=True, layout="constrained")
    for axis, path in zip(np.atleast_1d(axes), files, strict=True):
        draw(axis, Study(path))
    np.atleast_1d(axes)[0].set_ylabel("AUROC, %")
    figure.savefig(OUT, dpi=150)


def draw(axis: plt.Axes, study: Study) -> None:
    near = NEAR[study.ind]
    fractions = 2.0 ** np.arange(-4.5, 2.01, 0.25)
    lines = {"near": [], "far": []}
    for fraction in fractions:
        for kind, value in aurocs(study, lambda rows, at=fraction: rows.regret(at * study.mean_norm), near).items():
            lines[kind].append(value)
    msp = aurocs(study, CANDIDATES["Peers"]["MSP"](study), near)
    for kind, colour in (("near", NEAR_COLOUR), ("far", FAR_COLOUR)):
        name = f"near: {label(near[0])}" if kind == "near" else f"far: mean of {len(study.oods) - 1} sets"
        axis.plot(fractions, lines[kind], color=colour, lw=2, label=name)
        axis.axhline(msp[kind], color=colour, lw=1, ls=":")
    rows, mean = study.held["train"], study.mean_norm
    auto = balanced_length(rows, study.weight, study.bias, mean_norm=mean) / mean
    for at, name in ((1 / study.mean_norm, "paper"), (auto, "auto")):
        axis.axvline(at, color=MARK, lw=1, ls="--" if name == "paper" else "-")
        axis.text(at, 38.5, f" {name}", color=MARK, fontsize=9)
    network, ind = study.name.split("_")
    axis.set(xscale="log", ylim=(37, 101), title=f"{label(network)}, {label(ind)}")
    axis.set_xlabel("length of the embeddings / their mean norm")
    axis.set_xticks([0.06, 0.125, 0.25, 0.5, 1, 2, 4], ["1/16", "1/8", "1/4", "1/2", "1", "2", "4"])
    axis.minorticks_off()
    axis.legend(loc="lower right", bbox_to_anchor=(1, 0.06), fontsize=8, frameon=False)


def aurocs(study: Study, score: Score, near: tuple[str, ...]) -> dict[str, float]:
    inside = score(study.test)
    found = {name: auroc(inside, score(rows)) for name, rows in study.oods.items()}
    return {
        "near": float(np.mean([found[name] for name in near])),
        "far": float(np.mean([value for name, value in found.items() if name not in near])),
    }


if __name__ == "__main__":
    main()
