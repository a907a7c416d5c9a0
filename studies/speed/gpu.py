"""Fitting and scoring on a GPU: correct, and beside the bare matrix products.

    python -m studies.speed.gpu --out gpu.json

Times are wall milliseconds between two synchronisations, the median of several calls after a warm-up.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import torch

import pnml
from pnml_bench.results import start_run
from studies.speed.data import embeddings, head

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH, CLASSES, COUNT = 512, 100, 50_000


def milliseconds(work: Callable[[], object], repeats: int = 7) -> float:
    work()
    taken = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        taken.append(1e3 * (time.perf_counter() - begin))
    return median(taken)


def check(detector: pnml.Detector, weight: torch.Tensor, bias: torch.Tensor, train: torch.Tensor) -> dict[str, float]:
    """Compare with the same work on the CPU: the sum, and scores of known, new and empty rows."""
    host = pnml.Detector(weight.cpu(), bias.cpu()).fit(train.cpu())
    x = torch.cat([train[:2000], embeddings(2000, WIDTH, seed=3, device="cuda", far=True), train.new_zeros(3, WIDTH)])
    found, expected = detector.score(x).cpu().double(), host.score(x.cpu().double())
    exact = detector.score(x.double()).cpu()
    total = host.correlation.matrix
    return {
        "sum, relative to its largest entry": float(abs(detector.correlation.matrix - total).max() / total.max()),
        "largest relative error in float32": float((found / expected - 1).abs().max()),
        "largest relative error in float64": float((exact / expected - 1).abs().max()),
    }


def measure(detector: pnml.Detector, batch: int) -> dict[str, float]:
    """Time scores of one batch, and the three matrix products that no way around them saves."""
    x = embeddings(batch, WIDTH, seed=1, device="cuda")
    weight, _, _, whitening, _, _, background, _ = detector.model.constants.to(x)

    def products() -> None:
        _ = x @ weight, x @ whitening, x @ background

    return {
        "batch": batch,
        "score, float32": milliseconds(lambda: detector.score(x)),
        "score, float64": milliseconds(lambda: detector.score(x.double())),
        "detector(x), regret and decision": milliseconds(lambda: detector(x).is_ood),
        "the three products alone, float32": milliseconds(products),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the JSON to write")
    options = parser.parse_args()
    run = start_run("python -m studies.speed.gpu", f"cuda: {torch.cuda.get_device_name()}")
    weight, bias = head(WIDTH, CLASSES, device="cuda")
    train = embeddings(COUNT, WIDTH, seed=0, device="cuda")
    detector = pnml.Detector(weight, bias).fit(train)
    detector.calibrate(embeddings(5000, WIDTH, seed=2, device="cuda"))
    million = embeddings(1_000_000, WIDTH, seed=4, device="cuda")
    record = {
        "run": asdict(run),
        "width": WIDTH,
        "classes": CLASSES,
        "check": check(detector, weight, bias, train),
        "fit": [
            {"rows": len(x), "the sum": milliseconds(lambda x=x: pnml.Correlation(unit_norm=True).update(x), 5)}  # type: ignore[misc]
            for x in (train, million)
        ],
        "score": [measure(detector, batch) for batch in (1, 512, 20_000, 1_000_000)],
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
