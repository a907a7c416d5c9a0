"""Train the networks of OpenOOD's CIFAR protocol, measure every method on them, and write the table.

    python benchmarks/openood_cifar.py --out results --table docs/tables/openood.md

Six trainings of a ResNet-18, two sets and three seeds, then one run of the benchmark for each. A program that was
stopped goes on where it was when it is started again: trainings continue after their last saved epoch, finished cells
are not measured again. Image sets that are absent are named in the table. ``--epochs 1 --limit 500`` is a quick trial;
its results are in studies of their own.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from pnml.backend.files import atomic_path
from pnml.bench import training
from pnml.bench.data import load
from pnml.bench.device import choose_device
from pnml.bench.openood import FAR, MODEL, SEEDS, board, near_sets, study
from pnml.bench.openood_table import render
from pnml.bench.options import Options
from pnml.bench.protocol import plan
from pnml.bench.runner import run
from pnml.bench.store import load_study

METHODS = ("peers", "layers")
SETS = ("cifar10", "cifar100")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/openood"), help="the folder of the networks")
    parser.add_argument("--out", type=Path, default=Path("results"), help="the folder of the results")
    parser.add_argument("--table", type=Path, required=True, help="the Markdown file to write")
    parser.add_argument("--device", default="auto", help="as PyTorch names it")
    parser.add_argument("--epochs", type=int, help="instead of 100")
    parser.add_argument("--limit", type=int, help="at most so many images of every set")
    given = parser.parse_args()
    for ind in SETS:
        for seed in SEEDS:
            options = Options(
                out=given.out,
                study=study(seed),
                device=given.device,
                limit=given.limit,
                checkpoint=trained(ind, seed, given),
            )
            run(plan(MODEL, ind, [*near_sets(ind), *FAR], METHODS), options)
    studies = [load_study(given.out, Options(study=study(seed), limit=given.limit).full_study) for seed in SEEDS]
    given.table.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(given.table) as partial:
        partial.write_text(render([board(ind, studies) for ind in SETS]), encoding="utf-8")


def trained(ind: str, seed: int, given: argparse.Namespace) -> Path:
    """Train a network, unless it is there, and return its file."""
    recipe = training.recipe(MODEL, ind)
    if given.epochs is not None:
        recipe = replace(recipe, epochs=given.epochs)
    sets = (load(ind, split=split, limit=given.limit) for split in ("train", "test"))
    out = given.runs / f"{recipe.name}_seed-{seed}.safetensors"
    device = choose_device(given.device)
    return training.train(recipe, *sets, out=out, device=device, seed=seed, report=training.log_epochs).path


if __name__ == "__main__":
    main()
