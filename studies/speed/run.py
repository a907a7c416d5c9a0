"""CPU time of fitting and scoring beside pytorch-ood's PNML, on one thread, in one run.

The contenders take turns on the same embeddings; a ratio is the peer's CPU time divided by ours, the median over the
rounds with its quartiles. CPU time is the process's own, so other programs disturb it less than wall time.

    python -m studies.speed.run              # ten minutes; writes studies/speed/record.json and docs/tables/speed.md
    python -m studies.speed.run --quick      # a minute, smaller, writes nothing

NumPy's products depend on the kernels that OpenBLAS chooses; ``OPENBLAS_CORETYPE=Haswell`` asks for those of AVX2. A
run adds the kernels it was made with to the record, or replaces them there.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from threadpoolctl import threadpool_info, threadpool_limits

import pnml
from pnml.backend.progress import track
from pnml.integrations._import import import_pytorch_ood
from pnml_bench.results import start_run
from studies.speed.data import embeddings, head

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.core.scaling import EmbeddingScale

    Work = Callable[[], object]

BATCHES = (1, 32, 512, 2_000, 20_000)
RECORD = Path(__file__).parent / "record.json"


class Problem(NamedTuple):
    """What is fitted and scored."""

    count: int
    width: int
    classes: int
    scale: EmbeddingScale = "auto"


PROBLEMS = (
    Problem(50_000, 512, 100),
    Problem(50_000, 512, 100, "paper"),
    Problem(10_000, 2048, 1000),
    Problem(50_000, 64, 10),
)


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
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(cpu_seconds(work, repeats[name]))
    return times


def cpu_seconds(work: Work, repeats: int) -> float:
    begin = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - begin) / repeats


def ratio(theirs: list[float], ours: list[float]) -> dict[str, float]:
    """Return the median and quartiles of theirs divided by ours, round by round."""
    low, middle, high = quantiles([a / b for a, b in zip(theirs, ours, strict=True)], n=4)
    return {"median": round(middle, 3), "low": round(low, 3), "high": round(high, 3)}


def measure(problem: Problem, *, rounds: int, seconds: float) -> dict[str, Any]:
    """Time a fit, and scoring of every batch size, ours and the peer's."""
    weight, bias = head(problem.width, problem.classes)
    train = embeddings(problem.count, problem.width, seed=0)
    labels = torch.arange(problem.count) % problem.classes
    peer = import_pytorch_ood("studies/speed/run.py").detector.PNML(None, lambda z: z @ weight.T + bias)

    def fit() -> pnml.Detector:
        return pnml.Detector(weight, bias, embedding_scale=problem.scale).fit(train)

    works: dict[str, Work] = {
        "peer": lambda: peer.fit_features(train, labels),
        "sums": fit,
        "ready": lambda: fit().model,
    }
    fits = race(works, rounds=max(3, rounds // 2), seconds=0.0)
    detector = fit()
    scoring = []
    for batch in BATCHES:
        x = embeddings(batch, problem.width, seed=1)
        works = {
            "peer": lambda x=x: peer.predict_features(x),  # type: ignore[misc]
            "score": lambda x=x: detector.score(x),  # type: ignore[misc]
            "call": lambda x=x: detector(x).regret,  # type: ignore[misc]
        }
        times = race(works, rounds=rounds, seconds=seconds)
        scoring.append(
            {
                "batch": batch,
                "microseconds": {name: round(1e6 * float(np.median(one)), 1) for name, one in times.items()},
                "score": ratio(times["peer"], times["score"]),
                "call": ratio(times["peer"], times["call"]),
            }
        )
    return {
        **problem._asdict(),
        "precision": detector.precision,
        "fit": ratio(fits["peer"], fits["sums"]),
        "fit, ready to score": ratio(fits["peer"], fits["ready"]),
        "scoring": scoring,
    }


def kernels() -> str:
    """Return the kernels that NumPy's BLAS has chosen, as "openblas 0.3.31, Haswell"."""
    blas = next(one for one in threadpool_info() if one["user_api"] == "blas")
    return f"{blas['internal_api']} {blas['version']}, {blas.get('architecture', 'kernels unknown')}"


def table(record: dict[str, Any]) -> str:
    """Lay the record out in Markdown."""
    lines = [
        "# Speed: the record",
        "",
        "CPU time of pytorch-ood's PNML, which multiplies by PyTorch's MKL, divided by ours, one thread.",
        "Larger than 1: ours is faster. Median (quartiles).",
    ]
    for name, one in record.items():
        run = one["run"]
        commit = (run["commit"] or "unknown")[:12] + (" with local changes" if run["dirty"] else "")
        lines += ["", f"## NumPy's kernels: {name}", ""]
        lines += [f"`{run['command']}` at commit `{commit}` on {run['versions']['cpu']}.", ""]
        lines += ["| N, M, C, scale | fit: sums | fit: ready | " + " | ".join(f"{b:,}" for b in BATCHES) + " |"]
        lines += ["|---" * (3 + len(BATCHES)) + "|"]
        for problem in one["problems"]:
            size = f"{problem['count']:,}, {problem['width']}, {problem['classes']}, {problem['scale']}"
            cells = [shown(problem["fit"]), shown(problem["fit, ready to score"])]
            cells += [shown(batch["score"]) for batch in problem["scoring"]]
            lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def shown(found: dict[str, float]) -> str:
    return f"{found['median']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller problems, to see that everything runs")
    parser.add_argument("--table", type=Path, default=Path("docs/tables/speed.md"))
    options = parser.parse_args()
    run = start_run("python -m studies.speed.run", "cpu")
    torch.set_num_threads(1)
    problems = PROBLEMS
    rounds, seconds = 15, 0.2
    if options.quick:
        problems = tuple(problem._replace(count=2_000, width=min(problem.width, 64)) for problem in PROBLEMS)
        rounds, seconds = 3, 0.02
    with threadpool_limits(1):
        found = [measure(problem, rounds=rounds, seconds=seconds) for problem in track(problems, "problems")]
    entry = {kernels(): {"run": asdict(run), "rounds": rounds, "problems": found}}
    if options.quick:
        print(table(entry))
        return
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    record = {name: one for name, one in record.items() if isinstance(one, dict) and "problems" in one} | entry
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.table.write_text(table(record), encoding="utf-8")
    print(table(record))


if __name__ == "__main__":
    main()
