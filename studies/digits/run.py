"""The digits tables of the PyTorch and scikit-learn guides: what is flagged over many trainings, and three scores.

Example: python -m studies.digits.run --trainings 20 --out studies/digits/record.json
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import pnml
from pnml.core.calibration import calibrate
from pnml_bench.results import start_run

if TYPE_CHECKING:
    from pnml.core.scaling import EmbeddingScale

RATE = 0.05
SCALES: tuple[EmbeddingScale, ...] = ("auto", "paper")


def one_training(seed: int) -> dict[str, dict[str, float]]:
    """Split, train and guard as in the PyTorch guide; give shares in percent for each scale of the embeddings."""
    torch.manual_seed(seed)
    digits = load_digits()
    images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    known = (labels < 8).nonzero()[:, 0]
    known = known[torch.randperm(len(known))]
    train, held_out, fresh = known[:643], known[643:843], known[843:]
    loader = DataLoader(TensorDataset(images[train], labels[train]), batch_size=128, shuffle=True)
    model = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 8)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(60):
        for x, y in loader:
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
    noise = torch.rand(300, 64)

    def shares(scale: EmbeddingScale) -> dict[str, float]:
        guard = pnml.guard(model, embedding_scale=scale).fit(loader, progress=False)

        def flagged(x: Tensor) -> float:
            return 100 * float(guard(x).is_ood.float().mean())

        guard.calibrate([images[held_out]], false_alarm_rate=RATE, progress=False)
        found = {
            "accuracy": 100 * float((guard(images[fresh]).prediction == labels[fresh]).float().mean()),
            "fresh digits, held-out calibration": flagged(images[fresh]),
            "digits 8 and 9": flagged(images[labels >= 8]),
            "noise": flagged(noise),
        }
        guard.calibrate([images[train]], false_alarm_rate=RATE, leave_one_out=True, progress=False)
        found["fresh digits, leave-one-out calibration"] = flagged(images[fresh])
        guard.calibrate([images[train]], false_alarm_rate=RATE, progress=False)
        found["fresh digits, training set taken for fresh"] = flagged(images[fresh])
        return found

    return {scale: shares(scale) for scale in SCALES}


def compared() -> dict[str, dict[str, float]]:
    """Return the AUROC in percent of three scores and what the threshold flags, on the scikit-learn guide's split."""
    X, y = load_digits(return_X_y=True)
    X = X / 16
    known = y < 8
    train, rest, y_train, y_rest = train_test_split(X[known], y[known], test_size=0.5, random_state=0)
    held, test, _, _ = train_test_split(rest, y_rest, test_size=0.5, random_state=0)
    classifier = pnml.PNMLClassifier(LogisticRegression(max_iter=1000)).fit(train, y_train)
    forest = IsolationForest(random_state=0).fit(train)
    scores = {
        "regret": classifier.regret,
        "1 - largest probability": lambda rows: 1 - classifier.estimator_.predict_proba(rows).max(axis=1),
        "IsolationForest": lambda rows: -forest.score_samples(rows),
    }
    strange = {
        "8 and 9": X[~known],
        "turned": np.rot90(test.reshape(-1, 8, 8), axes=(1, 2)).reshape(-1, 64),
        "noise": np.random.default_rng(0).random((300, 64)),
    }
    table = {
        name: {
            kind: 100 * roc_auc_score(np.repeat([0, 1], [len(test), len(rows)]), np.r_[score(test), score(rows)])
            for kind, rows in strange.items()
        }
        for name, score in scores.items()
    }
    threshold = calibrate(classifier.regret(held), false_alarm_rate=RATE)
    table["flagged at 5%"] = {
        "8 and 9": 100 * float(threshold.is_ood(classifier.regret(strange["8 and 9"])).mean()),
        "known digits": 100 * float(threshold.is_ood(classifier.regret(test)).mean()),
    }
    return table


def spread(shares: list[float]) -> dict[str, float]:
    return {"mean": float(np.mean(shares)), "lowest": min(shares), "highest": max(shares)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    runs = [one_training(seed) for seed in range(options.trainings)]
    trainings = {
        scale: {name: spread([run[scale][name] for run in runs]) for name in runs[0][scale]} for scale in SCALES
    }
    run = asdict(start_run(f"python -m studies.digits.run --trainings {options.trainings}", "cpu"))
    text = json.dumps({"run": run, "trainings": trainings, "compared": compared()}, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
