"""How exact the regrets are: by an oracle of more digits, at every condition, and where a float32 inverse collapses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load_file
from speed_data import embeddings, head
from speed_oracle import exact_regret
from speed_peers import FUSED, OURS, PEER, QUICK, contenders
from torch import Tensor

from pnml import Correlation, Detector
from pnml.core.quick import Quick
from pnml.metrics import evaluate

if TYPE_CHECKING:
    from pathlib import Path

EPS = float(np.finfo(np.float64).eps)


def against_oracle(width: int, classes: int, count: int) -> dict[str, Any]:
    """Give the relative errors of the regrets of 128 rows, half of them like the training rows."""
    weight, bias = head(width, classes)
    train = embeddings(count, width, seed=0)
    x = torch.cat([embeddings(64, width, seed=1), embeddings(64, width, seed=2, far=True)])
    statistic = Correlation(unit_norm=True).update(train)
    exact = exact_regret(weight.numpy(), bias.numpy(), statistic.matrix, x.numpy()).astype(np.float64)
    values = np.linalg.eigvalsh(statistic.matrix)
    found: dict[str, Any] = {"width": width, "classes": classes, "count": count}
    found["condition"] = float(values[-1] / values[0])
    found["limit"] = 10 * EPS * found["condition"]
    for name, contender in contenders(weight, bias).items():
        if contender.gives_regret and name != FUSED:
            given = x.double() if name == OURS else x  # float32 embeddings get float32 regrets, rounded at the end
            scores = contender.score(contender.fit(train, torch.arange(count) % classes), given)
            error = np.abs(scores.double().numpy() / exact - 1)
            found[name] = {"median": float(np.median(error)), "largest": float(error.max())}
    return found


def by_condition(width: int = 48, classes: int = 10, count: int = 400) -> list[dict[str, float]]:
    """Give the largest relative error of ours at conditions of S from 1 to 1e12, with features fully mixed.

    The statistic is restored from a matrix of that condition, which is what the oracle takes as exact, too.
    """
    rng = np.random.default_rng(0)
    weight, bias = (part.numpy().astype(np.float64) for part in head(width, classes))
    basis, _ = np.linalg.qr(rng.normal(size=(width, width)))
    found = []
    for exponent in range(0, 13, 2):
        values = np.geomspace(1, 10.0**-exponent, width) * count
        matrix = (basis * values) @ basis.T
        matrix = (matrix + matrix.T) / 2
        rows = rng.normal(size=(64, width)) @ (basis * np.sqrt(values / count)).T
        x = np.vstack([rows, rng.normal(size=(64, width))])
        statistic = Correlation.restore(matrix, count, float(count), unit_norm=True)
        detector = Detector(weight, bias, embedding_scale="paper").merge(statistic)
        exact = exact_regret(weight, bias, matrix, x).astype(np.float64)
        quick = Quick(weight, bias, detector.subspace, "paper")
        narrow = x.astype(np.float32)
        single = detector.score(narrow, precision="float32") / detector.score(narrow)
        found.append(
            {
                "condition": 10.0**exponent,
                "float64": float(np.abs(detector.score(x) / exact - 1).max()),
                "limit": 10 * EPS * 10.0**exponent,
                "float32": float(np.abs(single - 1).max()),
                "float32_in_doubt": 1 - float(quick.score(narrow)[1].mean()) if quick.suits(narrow) else 1.0,
            }
        )
    return found


def collapse(weight: Tensor, bias: Tensor, train: Tensor, sets: dict[str, Tensor]) -> dict[str, Any]:
    """Compare AUROCs in percent of ours and of the peer, whose inverse drops what is weak to float32."""
    fitted = {name: contenders(weight, bias)[name] for name in (OURS, QUICK, PEER)}
    values = np.linalg.eigvalsh(Correlation(unit_norm=True).update(train).matrix)[::-1]
    limits = {name: len(values) * float(np.finfo(kind).eps) for name, kind in ((OURS, "float64"), (PEER, "float32"))}
    found: dict[str, Any] = {
        "features": len(values),
        "directions": {name: int((values > limit * values[0]).sum()) for name, limit in limits.items()},
    }
    for name, contender in fitted.items():
        state = contender.fit(train, torch.zeros(len(train), dtype=torch.long))
        scores = {which: contender.score(state, x) for which, x in sets.items()}
        found[name] = {
            which: evaluate(scores["test"], values).auroc for which, values in scores.items() if which != "test"
        }
    return found


def made_collapse(width: int, classes: int) -> dict[str, Any]:
    """Show the collapse on embeddings made on the spot."""
    sets = {"test": embeddings(2000, width, seed=1), "ood/far": embeddings(2000, width, seed=2, far=True)}
    return collapse(*head(width, classes), embeddings(20_000, width, seed=0), sets)


def real_collapse(folder: Path) -> dict[str, Any]:
    """Show the collapse on networks' embeddings: of each file its tensors train, test, ood/*, weight and bias."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        held = load_file(path)
        sets = {name: x for name, x in held.items() if name == "test" or name.startswith("ood/")}
        found[path.stem] = collapse(held["weight"].float(), held["bias"].float(), held["train"], sets)
    return found
