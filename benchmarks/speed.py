"""Fit and score beside every peer on the same embeddings, in one process: time, memory, exactness, growth.

Contenders take turns; a fixed calculation before and after each sample tells whether the machine was busy with other
things, and such samples are dropped. What the machine itself can do, its matrix products, takes its turns too.

    python benchmarks/speed.py                  # ten minutes on two quiet cores; results/speed-cpu.json, docs/images
    python benchmarks/speed.py --quick          # a minute, a smaller grid, nothing written
    python benchmarks/speed_tables.py           # put the records into docs/speed.md
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch
from speed_accuracy import against_oracle, by_condition, made_collapse, real_collapse
from speed_data import embeddings, head
from speed_peers import COVARIANCE, FUSED, OURS, PAPER, PEER, QUICK, contenders
from speed_plots import draw
from speed_tables import as_markdown
from speed_timing import Referee

from pnml import Correlation
from pnml.backend.progress import track
from pnml.bench.environment import environment
from pnml.bench.memory import watched_memory

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT, WIDTH, CLASSES, ROWS = 50_000, 512, 100, 50_000
REGRETS = (OURS, QUICK, FUSED, PEER)
BUDGET = 6e10  # floating-point operations one sample may take of a slow contender


def fit_once(referee: Referee, count: int, width: int, *, repeats: int, without: tuple[str, ...]) -> dict[str, Any]:
    """Time fitting, the decomposition included, and the statistic of ours alone beside the product it rests on."""
    x, labels = embeddings(count, width, seed=0), torch.arange(count) % CLASSES
    wide = x[:: -(-count // 12_500)].double().numpy()  # some of the rows, so that memory does not decide
    works: dict[str, Callable[[], object]] = {
        name: lambda one=one: one.fit(x, labels)  # type: ignore[misc]
        for name, one in contenders(*head(width, CLASSES)).items()
        if name not in {QUICK, FUSED, *without}
    }
    works["pnml, the sum alone"] = lambda: Correlation(unit_norm=True).update(x)
    works["float64 syrk of as many rows"] = lambda: [wide.T @ wide for _ in range(count // len(wide))]
    memory = peaks(works)
    found = referee.race(works, repeats=repeats, against=OURS)
    return {"count": count, "width": width, "results": {name: found[name] | memory[name] for name in found}}


def score_once(
    referee: Referee, rows: int, width: int, classes: int, *, repeats: int, only: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Time scoring; a contender that is slow gets fewer rows, and its time counts per row."""
    count = COUNT if width <= 512 else 10_000
    train, labels = embeddings(count, width, seed=0), torch.arange(count) % classes
    x = embeddings(rows, width, seed=1)
    works: dict[str, Callable[[], object]] = {}
    given = {}
    for name, one in contenders(*head(width, classes)).items():
        if (only and name not in only) or (name == FUSED and not can_compile(width, classes)):
            continue
        given[name] = rows if name in REGRETS else max(100, min(rows, int(BUDGET / one.cost(width, classes, count))))
        # Fitting by the paper's procedure takes minutes; what it scores with can be had from fewer rows.
        state = one.fit(train[:4000], labels[:4000]) if name == PAPER else one.fit(train, labels)
        works[name] = lambda one=one, state=state, n=given[name]: one.score(state, x[:n])  # type: ignore[misc]
        if name == PEER:
            works[f"{PEER}, 1000 rows at a time"] = lambda one=one, state=state: [  # type: ignore[misc]
                one.score(state, part) for part in torch.split(x, 1000)
            ]
            given[f"{PEER}, 1000 rows at a time"] = rows
    memory = peaks(works)
    found = referee.race(works, repeats=repeats, against=OURS)
    results = {name: found[name] | memory[name] | {"rows": given[name]} | per_row(found, name, given) for name in found}
    return {"rows": rows, "count": count, "width": width, "classes": classes, "results": results}


def per_row(found: dict[str, Any], name: str, given: dict[str, int]) -> dict[str, Any]:
    """Give rows per second, and how many times as long as ours each row takes."""
    share = given[OURS] / given[name]
    return {
        "rows_per_second": given[name] / found[name]["seconds"]["median"],
        **{
            key: {part: value * share for part, value in found[name][key].items()}
            for key in ("times_as_long", "times_the_cpu")
        },
    }


def peaks(works: dict[str, Callable[[], object]]) -> dict[str, dict[str, Any]]:
    """Run each once, to warm up, and give the most memory it took beyond what was there."""
    found = {}
    for name, work in works.items():
        with watched_memory(torch.device("cpu")) as memory:
            work()
        found[name] = {"peak_bytes": memory.peak}
    return found


def products(referee: Referee) -> dict[str, Any]:
    """Measure what the machine does at best: matrix products in both precisions, and a symmetric one."""
    a = torch.rand(2048, 2048)
    b = a.double()
    c = b.numpy()
    works: dict[str, Callable[[], object]] = {"float32": lambda: a @ a, "float64": lambda: b @ b}
    works["float64 syrk"] = lambda: c.T @ c
    found = referee.race(works, repeats=7, against="float64")
    flops = {"float32": 2.0, "float64": 2.0, "float64 syrk": 1.0}
    return {name: 1e-9 * flops[name] * 2048**3 / one["seconds"]["median"] for name, one in found.items()}


def grid(referee: Referee, *, quick: bool) -> dict[str, Any]:
    """Vary one thing at a time around 512 features and 100 classes.

    Of each run: how many rows, features and classes, how often, and who takes part (empty: all) or, in fits, who not.
    """
    fits: list[tuple[int, int, int, tuple[str, ...]]]
    scores: list[tuple[int, int, int, int, tuple[str, ...]]]
    if quick:
        fits, scores = [(4000, 128, 3, ())], [(4000, 128, 20, 3, ())]
    else:
        fits = [(COUNT, 342, 3, ()), (COUNT, WIDTH, 3, ()), (COUNT, 2048, 2, (PAPER, COVARIANCE))]
        scores = [(n, WIDTH, CLASSES, 3, ()) for n in (10_000, ROWS)]
        scores += [(n, WIDTH, CLASSES, 3, (*REGRETS, "pytorch-ood ViM")) for n in (200_000, 1_000_000)]
        scores += [(ROWS, 342, CLASSES, 3, ()), (10_000, 2048, CLASSES, 3, (*REGRETS, PAPER, "pytorch-ood ViM"))]
        scores += [(ROWS, WIDTH, 10, 3, ()), (ROWS, WIDTH, 1000, 3, ())]
    found: dict[str, Any] = {"fit": [], "score": [], "left_out": []}
    for count, width, repeats, without in track(fits, "fit"):
        found["fit"].append(fit_once(referee, count, width, repeats=repeats, without=without))
        found["left_out"] += [f"fit of {name}, {count:,} × {width}, for its time" for name in without]
    for rows, width, classes, repeats, only in track(scores, "score"):
        needed = 20 * rows * width  # bytes: the rows, and four arrays like them that a peer makes
        if needed > psutil.virtual_memory().available:
            found["left_out"].append(f"score of {rows:,} × {width}, for the {needed / 1e9:.0f} GB that peers need")
            continue
        found["score"].append(score_once(referee, rows, width, classes, repeats=repeats, only=only))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small grid, to see that everything runs")
    parser.add_argument("--embeddings", type=Path, help="folder of <network>.safetensors, to show the collapse on too")
    parser.add_argument("--out", type=Path, help="where the JSON goes; results/speed-cpu.json, with --quick nowhere")
    parser.add_argument("--images", type=Path, help="where the plots go; docs/images, with --quick nowhere")
    options = parser.parse_args()
    if not options.quick:
        options.out = options.out or Path("results/speed-cpu.json")
        options.images = options.images or Path("docs/images")
    width, classes = (64, 10) if options.quick else (WIDTH, CLASSES)
    before = os.getloadavg()[0]
    referee = Referee()
    record: dict[str, Any] = {
        "command": " ".join(["python benchmarks/speed.py", *sys.argv[1:]]),
        "commit": commit(),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": environment()
        | {"cores": os.cpu_count(), "threads": torch.get_num_threads(), "memory_bytes": psutil.virtual_memory().total},
        "gigaflops": products(referee),
        **grid(referee, quick=options.quick),
        "accuracy": [against_oracle(m, classes, 3000 if options.quick else 20_000) for m in (width, 342)],
        "by_condition": by_condition(),
        "collapse": {"made on the spot": made_collapse(width, classes)},
        "load": [before, os.getloadavg()[0]],
    }
    if options.embeddings:
        record["collapse"] |= real_collapse(options.embeddings)
    print("\n".join(as_markdown(record)))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if options.images:
        draw(record, options.images)


def can_compile(width: int, classes: int) -> bool:
    """Tell whether there is a C++ compiler, which ``torch.compile`` needs on a CPU, and it is worth the half minute."""
    return (width, classes) == (WIDTH, CLASSES) and shutil.which("c++") is not None


def commit() -> str | None:
    """Give the commit the code is of, None outside of a checkout."""
    words = ["git", "rev-parse", "HEAD"]
    found = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - fixed words
    return found.stdout.strip() or None


if __name__ == "__main__":
    main()
