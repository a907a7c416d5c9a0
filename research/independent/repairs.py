"""Lengths that were not taken: ``PYTHONPATH=research python research/independent/repairs.py FILES``.

For every network: AUROC near and far at the length of "auto", at repairs of it, and against the length. Nothing here
was used to choose anything in the library. Files of ``research/embeddings.py`` are welcome too. Adds to
independent.json.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import safe_open

from pnml import Detector
from pnml.bench.leaderboard import NEAR
from pnml.core import theorem
from pnml.core.scaling import ENTROPY_LEFT
from pnml.metrics import auroc

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RESULTS = Path(__file__).parent / "independent.json"
FRACTIONS = (1 / 16, 1 / 4, 1 / 2, 1, 2)


def mean_entropy(logits: Floats) -> float:
    log_p = theorem.log_softmax(logits)
    return float(-(np.exp(log_p) * log_p).sum(axis=1).mean())


def solve(entropy: Callable[[float], float], target: float, longest: float) -> float:
    """The length, up to the longest, at which an entropy that falls with the length has come down to a target."""
    low, high = 0.0, longest
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if entropy(middle) > target else (low, middle)
    return low


def lengths(rows: Floats, weight: Floats, bias: Floats, auto: float) -> dict[str, tuple[float, float]]:
    """Of each repair, the length and the factor that the bias gets."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows, norms = rows[norms[:, 0] > 0], norms[norms[:, 0] > 0]
    mean, logits = float(norms.mean()), rows / norms @ weight.T
    own, of_bias = mean_entropy(rows @ weight.T + bias), mean_entropy(0 * logits + bias)
    target = own + ENTROPY_LEFT * (of_bias - own)
    of_its_own = solve(lambda at: mean_entropy(at * logits + bias), target, 100 * mean)
    whole = np.log(len(bias))

    def along(at: float) -> float:
        return mean_entropy(at * logits + at / mean * bias)

    free = solve(along, ENTROPY_LEFT * whole, 100 * mean)
    both = solve(along, own + ENTROPY_LEFT * (whole - own), 100 * mean)
    return {
        "auto": (auto, 1),
        "not longer than the mean norm": (min(auto, mean), 1),
        "a quarter of what the network itself takes away": (of_its_own, 1),
        "the bias shrinks along": (free, free / mean),
        "the bias shrinks along, not longer than the mean norm": (min(free, mean), min(free / mean, 1)),
        "the bias shrinks along, a quarter of what the network itself takes away": (both, both / mean),
        **{f"{fraction:g} of the mean norm": (fraction * mean, 1) for fraction in FRACTIONS},
    }


class Network:
    """Stored embeddings of one network, and AUROCs of the regret at any length."""

    def __init__(self, path: Path) -> None:
        with safe_open(path, "np") as file:
            held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        self.weight, self.bias = held["weight"].astype(float), held["bias"].astype(float)
        self.train, self.test = held["train"].astype(float), held["test"]
        near = NEAR.get(path.stem.partition("_")[2], ())
        self.oods = {
            name.removeprefix("ood/"): (rows, name.startswith("ood/near/") or name.removeprefix("ood/") in near)
            for name, rows in held.items()
            if name.startswith("ood/")
        }
        self.mean_norm = float(np.linalg.norm(self.train, axis=1).mean())
        self.fitted = Detector(self.weight, self.bias).fit(held["train"])

    def at(self, length: float, bias: float) -> tuple[float | None, float]:
        """AUROC near (None if there is no near set) and far, in percent, at a length and with so much of the bias."""
        detector = Detector(self.weight, bias * self.bias).merge(self.fitted.correlation)
        detector._length, detector._subspace = length, self.fitted.subspace  # noqa: SLF001  # no public way to these
        inside = detector.score(self.test)
        found: dict[bool, list[float]] = {True: [], False: []}
        for rows, near in self.oods.values():
            found[near].append(auroc(inside, detector.score(rows)))
        return float(np.mean(found[True])) if found[True] else None, float(np.mean(found[False]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    files = parser.parse_args().files
    held = json.loads(RESULTS.read_text(encoding="utf-8"))
    found = held.setdefault("repairs", {})
    warnings.simplefilter("ignore")
    for path in files:
        if path.stem in found:
            continue
        network = Network(path)
        tried = lengths(network.train, network.weight, network.bias, network.fitted.embedding_length)
        found[path.stem] = {
            name: {"length": length / network.mean_norm, "near and far": network.at(length, bias)}
            for name, (length, bias) in tried.items()
        }
        found[path.stem]["bias"] = float(np.ptp(network.bias))
        print(path.stem, flush=True)
        RESULTS.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
