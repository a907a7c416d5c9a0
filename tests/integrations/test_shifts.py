"""A table whose columns shift is flagged, and the same table is not: by networks, linear models and pipelines."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import pnml

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.core.calibration import Threshold

    from .rows import Matrix

    Fitted = tuple[Callable[[Matrix], Matrix], Threshold]

COLUMNS, CLASSES, ROWS = 54, 7, 2000
RNG = np.random.default_rng(0)
LABELS = RNG.integers(CLASSES, size=3 * ROWS)
NOISE = RNG.normal(size=(3 * ROWS, COLUMNS)) @ (np.eye(COLUMNS) + RNG.normal(size=(COLUMNS, COLUMNS)) / COLUMNS**0.5)
TABLE = StandardScaler().fit_transform(RNG.normal(size=(CLASSES, COLUMNS))[LABELS] + NOISE)
TRAIN, HELD_OUT, FRESH = TABLE[:ROWS], TABLE[ROWS:-ROWS], TABLE[-ROWS:]
UNITS = 10 ** RNG.uniform(-3, 6, size=COLUMNS)
OFFSETS = UNITS * RNG.uniform(-20, 20, size=COLUMNS)

SHIFTS: dict[str, Matrix] = {
    "every column + 1 deviation": FRESH + 1,
    "every column + 3 deviations": FRESH + 3,
    "every column + 10 deviations": FRESH + 10,
    "times 5": 5 * FRESH,
    "times 100": 100 * FRESH,
    "times 0.01": 0.01 * FRESH,
    "one column + 10 deviations": FRESH + 10 * np.eye(COLUMNS)[RNG.integers(COLUMNS, size=ROWS)],
    "noise": 2 * RNG.normal(size=FRESH.shape),
}


def tensor(rows: Matrix) -> Tensor:
    return torch.from_numpy(rows.astype(np.float32))


def guarded(*widths: int, to: Callable[[Matrix], Matrix]) -> Fitted:
    """Train a network, which standardises columns itself, and guard it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        blocks = [nn.Sequential(nn.Linear(before, after), nn.ReLU()) for before, after in pairwise(widths)]
        network = nn.Sequential(nn.BatchNorm1d(COLUMNS), *blocks, nn.Linear(widths[-1], CLASSES))
        x, y = tensor(to(TRAIN)), torch.from_numpy(LABELS[:ROWS])
        optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
        for _ in range(8):
            for batch in torch.randperm(ROWS).reshape(-1, 50):
                optimizer.zero_grad()
                torch.autograd.backward(nn.functional.cross_entropy(network(x[batch]), y[batch]))
                optimizer.step()
    guard = pnml.guard(network.eval()).fit([x], progress=False)
    threshold = guard.calibrate([tensor(to(HELD_OUT))], false_alarm_rate=0.05, progress=False)
    return lambda rows: np.asarray(guard(tensor(rows)).regret, dtype=np.float64), threshold


def classified(model: Any, *, to: Callable[[Matrix], Matrix]) -> Fitted:
    classifier = pnml.PNMLClassifier(model).fit(to(TRAIN), LABELS[:ROWS])
    return classifier.regret, classifier.calibrate(to(HELD_OUT), false_alarm_rate=0.05)


def perceptron(*sizes: int) -> MLPClassifier:
    return MLPClassifier(sizes, solver="adam", max_iter=60, tol=1e-2, random_state=0)


MODELS: dict[str, Callable[..., Fitted]] = {
    "network, one hidden layer": lambda to: guarded(COLUMNS, 64, to=to),
    "network, two hidden layers": lambda to: guarded(COLUMNS, 64, 64, to=to),
    "perceptron": lambda to: classified(perceptron(64), to=to),
    "scaler and perceptron": lambda to: classified(make_pipeline(StandardScaler(), perceptron(64, 64)), to=to),
    "linear model": lambda to: classified(make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)), to=to),
}


def as_they_are(rows: Matrix) -> Matrix:
    return rows


def in_units(rows: Matrix) -> Matrix:
    return rows * UNITS + OFFSETS


@pytest.mark.parametrize("to", [as_they_are, in_units])
@pytest.mark.parametrize("name", MODELS)
def test_shifted_rows_are_flagged_and_known_ones_as_promised(name: str, to: Callable[[Matrix], Matrix]) -> None:
    regret, threshold = MODELS[name](to=to)
    known = regret(to(FRESH))
    low, high = threshold.interval
    slack = 2.6 * (0.05 * 0.95 / ROWS) ** 0.5  # of the share of so many rows
    assert low - slack < threshold.is_ood(known).mean() < high + slack
    for shift, rows in SHIFTS.items():
        strange = regret(to(rows))
        truth = np.repeat([0, 1], ROWS)
        assert roc_auc_score(truth, np.concatenate([known, strange])) > 0.99, shift
        assert threshold.is_ood(strange).mean() > 0.95, shift


def test_shrunken_rows_are_flagged_by_no_distance_from_the_mean() -> None:
    """Without a classifier there is that distance alone, and these rows are nearer to the mean than any other."""
    detector = pnml.PNMLOutlierDetector().fit(TRAIN)
    detector.calibrate(HELD_OUT)
    flagged = {shift: detector.is_ood(rows).mean() for shift, rows in SHIFTS.items()}
    assert flagged.pop("times 0.01") == 0
    assert min(flagged.values()) > 0.95
