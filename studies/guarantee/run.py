"""The picture of the guide to guarantees: false alarms by class, with one threshold and with one for each class.

A linear classifier and its detector learn digits, 80 of each class but 40 of one. Half of the other digits calibrate,
half are fresh. Training sets and halves are drawn many times. It takes a minute.

Example: python -m studies.guarantee.run --out out/figures --record studies/guarantee/record.json
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from pnml import Detector
from pnml.backend.files import write_text
from pnml.core.calibration import By, calibrate
from pnml_bench.figures import new_figure, save
from pnml_bench.results import start_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

RATE, RARE, SPLITS = 0.05, 1, 20
KINDS: dict[str, By | None] = {"one threshold for all classes": None, "one for each predicted class": "prediction"}
COLOURS = ("#e6862c", "#08306b")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path("out/figures"))
    parser.add_argument("--record", type=Path, default=Path("out/guarantee.json"))
    args = parser.parse_args()
    counts = np.sum([one_training(seed) for seed in range(args.trainings)], axis=0)
    percent = 100 * counts[:, :, 0] / counts[:, :, 1]
    run = asdict(start_run(f"python -m studies.guarantee.run --trainings {args.trainings}", "cpu"))
    record: dict[str, Any] = {
        "run": run,
        "trainings": args.trainings,
        "splits": SPLITS,
        "asked": 100 * RATE,
        "rare": RARE,
    }
    for kind, rates, (_, of_true) in zip(KINDS, percent, counts, strict=True):
        record[kind] = {
            "flagged of all": round(100 * float(of_true[0].sum() / of_true[1].sum()), 2),
            "flagged by predicted class": rates[0].round(2).tolist(),
            "flagged by true class": rates[1].round(2).tolist(),
        }
    write_text(args.record, json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))
    for path in save(draw(percent[:, 0]), args.out, "guarantee"):
        print(path)


def one_training(seed: int) -> NDArray[np.int64]:
    """Fit, then calibrate and count many times.

    Returns:
        Flagged and all fresh digits, for both kinds, by predicted and by true class, (2, 2, 2, classes).
    """
    bunch, rng = load_digits(), np.random.default_rng(seed)
    images, labels = bunch.data / 16, bunch.target
    by_class = [rng.permutation(np.flatnonzero(labels == number)) for number in range(10)]
    cuts = [40 if number == RARE else 80 for number in range(10)]
    train = np.concatenate([mine[:cut] for mine, cut in zip(by_class, cuts, strict=True)])
    unseen = np.concatenate([mine[cut:] for mine, cut in zip(by_class, cuts, strict=True)])
    model = LogisticRegression(max_iter=2000).fit(images[train], labels[train])
    result = Detector(model.coef_, model.intercept_).fit(images[train])(images[unseen])
    regret, prediction = result.regret, result.prediction
    counts = np.zeros((2, 2, 2, 10), dtype=np.int64)
    for _ in range(SPLITS):
        held, fresh = np.array_split(rng.permutation(len(unseen)), 2)
        for number, by in enumerate(KINDS.values()):
            options: dict[str, Any] = {"predictions": prediction[held], "n_classes": 10, "by": by}
            is_ood = calibrate(regret[held], false_alarm_rate=RATE, **options).is_ood(regret[fresh], prediction[fresh])
            for grouping, classes in enumerate((prediction[fresh], labels[unseen][fresh])):
                counts[number, grouping, 0] += np.bincount(classes[is_ood], minlength=10)
                counts[number, grouping, 1] += np.bincount(classes, minlength=10)
    return counts


def draw(percent: NDArray[np.float64]) -> Figure:
    """Draw the false alarms of every predicted class as bars, and the rate that was asked for."""
    figure = new_figure(8, 3)
    axes = figure.add_subplot()
    for number, (kind, rates, colour) in enumerate(zip(KINDS, percent, COLOURS, strict=True)):
        axes.bar(np.arange(10) + 0.4 * number - 0.2, rates, width=0.4, color=colour, label=kind)
    axes.axhline(100 * RATE, color="black", linestyle="--", linewidth=1, label="asked for")
    axes.set_xticks(range(10), [f"{number}\nrare" if number == RARE else str(number) for number in range(10)])
    axes.set_xlabel("predicted digit")
    axes.set_ylabel("known digits flagged, %")
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main()
