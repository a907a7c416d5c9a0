"""What is flagged of inputs that are prepared in another way than for the fit: tables and pictures.

Example: python -m studies.shifts.run --out studies/shifts/record.json

CIFAR-10 is searched for in the folders of ``PNML_DATA``.

Every threshold is set on held-out rows for 5 % of false alarms. Two tables of 54 standardised columns and 7 classes are
drawn at random: "numbers" is normal within its classes; "mixed" has ten columns of numbers, six of them with heavy
tails, and two one-hot codes of 4 and 40 columns. The networks for pictures are small CNNs: of the digits of
scikit-learn, 8×8 in one channel, and of CIFAR-10.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import pnml
from pnml.core.calibration import calibrate
from pnml_bench.data import load
from pnml_bench.results import start_run
from studies.records import write_record

if TYPE_CHECKING:
    from collections.abc import Callable

    Matrix = np.ndarray[Any, Any]
    Shares = dict[str, list[float]]

COLUMNS, CLASSES, ROWS = 54, 7, 3000
RATE = 0.05


def table(*, mixed: bool) -> tuple[Matrix, Matrix]:
    """Return standardised rows and their classes."""
    rng = np.random.default_rng(0)
    classes = rng.integers(CLASSES, size=3 * ROWS)
    mixing = np.eye(COLUMNS) + rng.normal(size=(COLUMNS, COLUMNS)) / COLUMNS**0.5
    rows = rng.normal(size=(CLASSES, COLUMNS))[classes] + rng.normal(size=(3 * ROWS, COLUMNS)) @ mixing
    if mixed:
        rows[:, :3] = np.sinh(rows[:, :3])
        rows[:, 3:6] = np.exp(rows[:, 3:6])
        rows[:, 10:14] = np.eye(4)[rows[:, 10:14].argmax(axis=1)]
        rows[:, 14:] = np.eye(40)[rows[:, 14:].argmax(axis=1)]
    return StandardScaler().fit(rows[:ROWS]).transform(rows), classes


def shifts_of_columns(rows: Matrix) -> dict[str, Matrix]:
    rng = np.random.default_rng(1)
    return {
        "every column + 1 σ": rows + 1,
        "+ 3 σ": rows + 3,
        "+ 10 σ": rows + 10,
        "× 5": 5 * rows,
        "× 100": 100 * rows,
        "× 0.01": 0.01 * rows,
        "one column + 10 σ": rows + 10 * np.eye(COLUMNS)[rng.integers(COLUMNS, size=len(rows))],
        "noise": 2 * rng.normal(size=rows.shape),
    }


def changes_of_pictures(x: Tensor) -> dict[str, Tensor]:
    changed = {
        "× 255": 255 * x,
        "× 16": 16 * x,
        "÷ 16": x / 16,
        "inverted": x.amax() - x,
        "upside down": x.flip(2),
    }
    if x.shape[1] == 3:
        changed["channels swapped"] = x.flip(1)
    return changed


def trained(network: nn.Module, x: Tensor, y: Tensor, *, epochs: int) -> nn.Module:
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(network(x[batch]), y[batch]))
            optimizer.step()
        schedule.step()
    return network.eval()


def perceptron(*widths: int) -> nn.Sequential:
    blocks = [nn.Sequential(nn.Linear(before, after), nn.ReLU()) for before, after in pairwise(widths)]
    return nn.Sequential(*blocks, nn.Linear(widths[-1], CLASSES))


def convolutional(channels: int, widths: tuple[int, ...]) -> nn.Sequential:
    blocks = []
    for before, after in pairwise((channels, *widths)):
        convolution = nn.Conv2d(before, after, 3, padding=1)
        blocks.append(nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)))
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))


def shares(regret: Callable[[Any], Matrix], held_out: Any, known: Any, changed: dict[str, Any]) -> Shares:
    """Return the share that is flagged and the AUROC, in percent; of known inputs, which are the first, the share."""
    threshold = calibrate(regret(held_out), false_alarm_rate=RATE)
    of_known = regret(known)
    found = {"unchanged": [100 * float(threshold.is_ood(of_known).mean())]}
    for name, inputs in changed.items():
        strange = regret(inputs)
        truth = np.repeat([0, 1], [len(of_known), len(strange)])
        auroc = 100 * roc_auc_score(truth, np.concatenate([of_known, strange]))
        found[name] = [100 * float(threshold.is_ood(strange).mean()), auroc]
    return {name: [round(value, 1) for value in values] for name, values in found.items()}


def by_guard(network: nn.Module, train: Tensor) -> Callable[[Any], Matrix]:
    guard = pnml.guard(network).fit(train.split(500), progress=False)

    def regret(x: Any) -> Matrix:
        parts = [guard(part).regret.double() for part in torch.as_tensor(x, dtype=torch.float32).split(500)]
        return np.asarray(torch.cat(parts))

    return regret


def of_tables() -> dict[str, Shares]:
    found = {}
    for name in ("numbers", "mixed"):
        rows, classes = table(mixed=name == "mixed")
        train, held_out, known = rows[:ROWS], rows[ROWS:-ROWS], rows[-ROWS:]
        x, y = torch.tensor(train, dtype=torch.float32), torch.tensor(classes[:ROWS])
        torch.manual_seed(0)
        scores: dict[str, Callable[[Any], Matrix]] = {}
        for hidden in (1, 2):
            network = trained(perceptron(COLUMNS, *[64] * hidden), x, y, epochs=15)
            scores[f"guard, {hidden} hidden"] = by_guard(network, x)
        for title, model in (
            ("MLPClassifier", MLPClassifier(max_iter=60, random_state=0)),
            ("LogisticRegression", LogisticRegression(max_iter=1000)),
        ):
            scores[title] = pnml.PNMLClassifier(model).fit(train, classes[:ROWS]).regret
        detector = pnml.PNMLOutlierDetector().fit(train)
        scores["PNMLOutlierDetector()"] = lambda rows, detector=detector: -detector.score_samples(rows)
        for title, score in scores.items():
            found[f"{name}: {title}"] = shares(score, held_out, known, shifts_of_columns(known))
    return found


def of_pictures(x: Tensor, y: Tensor, widths: tuple[int, ...], *, epochs: int) -> Shares:
    """Return the shares of a network trained on half of the pictures; a quarter calibrates, a quarter is changed."""
    torch.manual_seed(0)
    order = torch.randperm(len(x))
    train, held_out, known = order.split([len(x) - 2 * (len(x) // 4), len(x) // 4, len(x) // 4])
    network = trained(convolutional(x.shape[1], widths), x[train], y[train], epochs=epochs)
    with torch.no_grad():
        correct = torch.cat([network(part).argmax(dim=1) for part in x[known].split(500)]) == y[known]
    found = shares(by_guard(network, x[train]), x[held_out], x[known], changes_of_pictures(x[known]))
    return found | {"accuracy": [round(100 * float(correct.float().mean()), 1)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    digits = load_digits()
    found = of_tables()
    x = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
    found["digits"] = of_pictures(x, torch.tensor(digits.target), (16, 32), epochs=30)
    pictures = load("cifar10", split="train", limit=20_000)
    x = torch.tensor(pictures.images, dtype=torch.float32).permute(0, 3, 1, 2) / 255
    found["CIFAR-10"] = of_pictures(x, torch.tensor(pictures.labels), (32, 64, 128), epochs=8)
    run = asdict(start_run("python -m studies.shifts.run", "cpu"))
    write_record(options.out, {"run": run, "flagged and AUROC in percent": found})


if __name__ == "__main__":
    main()
