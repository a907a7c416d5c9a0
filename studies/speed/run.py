"""CPU time of fitting, scoring and guarding beside pytorch-ood's PNML, on one thread, in one run.

The contenders take turns on the same embeddings; a ratio is the peer's CPU time divided by ours, the median over the
rounds with its quartiles. CPU time is the process's own, so other programs disturb it less than wall time.

    python -m studies.speed.run              # five minutes; writes studies/speed/record.json and docs/tables/speed.md
    python -m studies.speed.run --quick      # half a minute, smaller, writes nothing
    python -m studies.speed.run --real PATH  # also AUROC of float32 against float64 on PATH/*.safetensors

Files of real embeddings hold ``weight``, ``bias``, ``train``, ``test`` and one array per OOD set, named ``ood.NAME``.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.numpy import load_file
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

import pnml
from pnml.backend.progress import track
from pnml.integrations._import import import_pytorch_ood
from pnml.metrics import auroc
from pnml_bench.results import start_run
from studies.speed.data import embeddings, head

if TYPE_CHECKING:
    from collections.abc import Callable

    Work = Callable[[], object]

WIDTH, CLASSES, COUNT = 512, 100, 50_000
BATCHES = (1, 32, 512, 2_000, 20_000)
AIMS = {"fit": 1.4, "score": {1: 1.0, 32: 1.5}, "detector(x)": {1: 1.0, 32: 1.5}}  # 2.0 for larger batches
MODULES = 60  # of a guarded network, about those of a ResNet-18


def race(works: dict[str, Work], *, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Return the CPU seconds of one call of each work, once per round; works take turns.

    Args:
        works: what to time.
        rounds: how often.
        seconds: how long about a work is repeated within a round, so that the clock's steps do not matter.
    """
    repeats = {}
    for name, work in works.items():
        work()  # warms up
        repeats[name] = max(1, int(seconds / max(cpu_seconds(work, 1), 1e-6)))
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            taken[name].append(cpu_seconds(work, repeats[name]))
    return taken


def cpu_seconds(work: Work, repeats: int) -> float:
    begin = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - begin) / repeats


def ratio(theirs: list[float], ours: list[float]) -> dict[str, float]:
    """Return the median and quartiles of theirs divided by ours, round by round."""
    low, middle, high = quantiles([a / b for a, b in zip(theirs, ours, strict=True)], n=4)
    return {"median": middle, "low": low, "high": high}


def read(result: pnml.Result) -> None:
    """Read what a server needs: the regret and the decision."""
    _ = result.regret, result.is_ood


class Body(nn.Module):
    """A network whose embeddings are its input, with as many modules as a real one for the guard to walk."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.others = nn.ModuleList(nn.Identity() for _ in range(MODULES))
        self.last = nn.Linear(weight.shape[1], weight.shape[0])
        self.last.weight.data, self.last.bias.data = weight, bias

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(x)
        return logits


def measure_batch(batch: int, fitted: tuple[Any, pnml.Guard], *, rounds: int, seconds: float) -> dict[str, Any]:
    """Time scoring, the detector's call and the guard on one batch size."""
    peer, guard = fitted
    detector, model, x = guard.fitted(), guard.model, embeddings(batch, guard.fitted().n_features, seed=1)

    def run_model() -> None:
        with torch.no_grad():
            model(x)

    taken = race(
        {
            "peer": lambda: peer.predict_features(x),
            "score": lambda: detector.score(x),
            "detector(x)": lambda: read(detector(x)),
            "model": run_model,
            "guard(x)": lambda: read(guard(x)),
        },
        rounds=rounds,
        seconds=seconds,
    )
    overhead = [guarded - plain for guarded, plain in zip(taken["guard(x)"], taken["model"], strict=True)]
    return {
        "batch": batch,
        "microseconds": {name: 1e6 * float(np.median(times)) for name, times in taken.items()},
        "score": ratio(taken["peer"], taken["score"]),
        "detector(x)": ratio(taken["peer"], taken["detector(x)"]),
        "guard overhead / detector(x)": ratio(overhead, taken["detector(x)"]),
    }


def real_accuracy(path: Path) -> dict[str, Any]:
    """Compare float32 with float64 on the embeddings of a real network: the largest change of AUROC, in points."""
    arrays = load_file(path)
    detector = pnml.Detector(arrays["weight"], arrays["bias"]).fit(arrays["train"])
    fast, exact = detector.score(arrays["test"]), detector.score(arrays["test"].astype(np.float64))
    found = {"network": path.stem, "largest_relative_error": float(np.max(np.abs(fast / exact - 1)))}

    def change(ood: np.ndarray[Any, Any]) -> float:
        return abs(auroc(fast, detector.score(ood)) - auroc(exact, detector.score(ood.astype(np.float64))))

    changes = [change(arrays[name]) for name in arrays if name.startswith("ood.")]
    return found | {"sets": len(changes), "largest_change_of_auroc": max(changes)}


def table(record: dict[str, Any]) -> str:
    """Lay the record out in Markdown."""
    run = record["run"]
    commit = (run["commit"] or "unknown")[:12] + (" with local changes" if run["dirty"] else "")
    size = f"N = {record['count']:,}, M = {record['width']}, C = {record['classes']}"
    lines = [
        "# Speed: the record",
        "",
        f"Written by `{run['command']}` at commit `{commit}` on {run['versions']['cpu']}.",
        "",
        f"CPU time of pytorch-ood's PNML divided by ours, one thread, {size}.",
        f"Median (quartiles) over {record['rounds']} rounds. Larger than 1: ours is faster.",
        "",
        "| batch | `score` | `detector(x)` | aim | guard's overhead / `detector(x)` (aim: at most 1.2) | `score`, µs |",
        "|---|---|---|---|---|---|",
    ]
    for row in record["scoring"]:
        aim = AIMS["score"].get(row["batch"], 2.0)  # type: ignore[attr-defined]
        cells = [shown(row[name]) for name in ("score", "detector(x)")]
        guard = shown(row["guard overhead / detector(x)"])
        lines.append(
            f"| {row['batch']:,} | {cells[0]} | {cells[1]} | {aim} | {guard} | {row['microseconds']['score']:,.0f} |"
        )
    ready = shown(record["fit, ready to score"])
    lines += ["", f"Fit, the sum: {shown(record['fit'])}, aim {AIMS['fit']}; decomposed and ready to score: {ready}."]
    lines += ["The peer decomposes when it fits.", ""]
    if record["real"]:
        lines += [
            "",
            "Scores in float32 against float64 on real networks:",
            "",
            "| network | largest relative error of a regret | largest change of AUROC, points |",
            "|---|---|---|",
            *(
                f"| {one['network']} | {one['largest_relative_error']:.1e} | {one['largest_change_of_auroc']:.4f} |"
                for one in record["real"]
            ),
        ]
    return "\n".join(lines) + "\n"


def shown(found: dict[str, float]) -> str:
    return f"{found['median']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller problem, to see that everything runs")
    parser.add_argument("--real", type=Path, help="folder of embeddings of real networks")
    parser.add_argument("--out", type=Path, default=Path("studies/speed/record.json"))
    parser.add_argument("--table", type=Path, default=Path("docs/tables/speed.md"))
    options = parser.parse_args()
    count, width, rounds, seconds = (2_000, 64, 3, 0.02) if options.quick else (COUNT, WIDTH, 15, 0.2)
    run = start_run("python -m studies.speed.run" + (" --real FOLDER" if options.real else ""), "cpu")
    torch.set_num_threads(1)
    weight, bias = head(width, CLASSES)
    train, labels = embeddings(count, width, seed=0), torch.arange(count) % CLASSES
    peer = import_pytorch_ood("studies/speed/run.py").detector.PNML(None, lambda z: z @ weight.T + bias)

    def fit() -> pnml.Detector:
        return pnml.Detector(weight, bias).fit(train)

    with threadpool_limits(1):
        works = {"peer": lambda: peer.fit_features(train, labels), "fit": fit, "ready": lambda: fit().model}
        fits = race(works, rounds=9, seconds=0.0)
        guard = pnml.guard(Body(weight, bias).eval(), layers="last").fit(train.split(5000), progress=False)
        guard.calibrate([embeddings(5000, width, seed=2)], progress=False)
        scoring = [
            measure_batch(batch, (peer, guard), rounds=rounds, seconds=seconds) for batch in track(BATCHES, "batches")
        ]
        real = [real_accuracy(path) for path in sorted(options.real.glob("*.safetensors"))] if options.real else []
    record = {
        "run": asdict(run),
        "count": count,
        "width": width,
        "classes": CLASSES,
        "rounds": rounds,
        "fit": ratio(fits["peer"], fits["fit"]),
        "fit, ready to score": ratio(fits["peer"], fits["ready"]),
        "scoring": scoring,
        "real": real,
    }
    print(table(record))
    if not options.quick:
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        options.table.write_text(table(record), encoding="utf-8")


if __name__ == "__main__":
    main()
