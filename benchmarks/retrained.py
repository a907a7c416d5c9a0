"""Train every network whose checkpoint cannot be had, tune it, and run the benchmark on it.

``python benchmarks/retrained.py --jobs 3`` keeps three commands running at a time, each as soon as what it needs is
there, and goes on where it stopped when it is started again: every command is one of ``pnml train`` or ``pnml bench``,
and both resume. Trainings come first, in the order of the list; Gram, which leaves a GPU no room for others, last.
Weights go to ``runs/``, results to ``results/retrained``, what the commands print to ``runs/logs``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

FAR = ("tinyimagenet_crop", "tinyimagenet_resize", "uniform", "gaussian")
OOD = {
    "cifar10": ("svhn", "cifar100", *FAR),
    "cifar100": ("svhn", "cifar10", *FAR),
    "svhn": ("cifar10", "cifar100", *FAR),
}
TRAININGS = {  # epochs, batch size, learning rate: shorter than the recipes
    ("resnet-20", "cifar10"): (50, 256, 0.2),
    ("resnet-34", "cifar10"): (40, 512, 0.4),
    ("wideresnet-40-2", "cifar10"): (42, 256, 0.2),
    ("resnet-34", "cifar100"): (42, 512, 0.4),
    ("wideresnet-40-2", "cifar100"): (42, 256, 0.2),
    ("resnet-34", "svhn"): (30, 256, 0.15),
}
TUNINGS = {"resnet-34": "oecc", "wideresnet-40-2": "energy"}
METHODS = {
    "resnet-34": ("baseline,energy", "odin"),
    "wideresnet-40-2": ("baseline",),
    "resnet-20": ("baseline,energy",),
}


@dataclass
class Job:
    """A command of pnml, and the weights it needs."""

    name: str
    words: list[str]
    needs: Path | None = None
    process: subprocess.Popen[bytes] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it can be started."""
        return self.process is None and (self.needs is None or self.needs.exists())

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def start(self, logs: Path) -> None:
        """Start it, printing into a file of its own."""
        logs.mkdir(parents=True, exist_ok=True)
        with (logs / f"{self.name}.txt").open("wb") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "pnml", *self.words], stdout=log, stderr=log)  # noqa: S603


def jobs(runs: Path, results: Path) -> list[Job]:
    """List all commands, the most urgent first."""
    trainings, tunings, benches, grams = [], [], [], []
    for (model, ind), (epochs, batch, lr) in TRAININGS.items():
        about = ["train", "--model", model, "--dataset", ind]
        weights = runs / f"{model}_{ind}.safetensors"
        schedule = ["--epochs", str(epochs), "--batch-size", str(batch), "--lr", str(lr)]
        trainings.append(Job(weights.stem, [*about, *schedule, "--out", str(weights)]))
        benches += [_bench(model, ind, methods, weights, results) for methods in METHODS[model]]
        if tune := TUNINGS.get(model):
            tuned = runs / f"{model}-{tune}_{ind}.safetensors"
            outliers = ["--outliers", "rooms_resize", "--outliers", "transformed"]
            words = [*about, "--tune", tune, "--from", str(weights), *outliers, "--out", str(tuned)]
            tunings.append(Job(tuned.stem, words, weights))
            (grams if tune == "oecc" else benches).append(_bench(model, ind, tune, tuned, results))
        if model == "resnet-34":
            grams.append(_bench(model, ind, "gram", weights, results))
    return trainings + tunings + benches + grams


def _bench(model: str, ind: str, methods: str, weights: Path, results: Path) -> Job:
    words = ["bench", "--model", model, "--ind", ind, "--ood", ",".join(OOD[ind]), "--method", methods]
    words += ["--checkpoint", str(weights), "--out", str(results)]
    return Job(f"bench_{weights.stem}_{methods.replace(',', '-')}", words, weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="commands at a time")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--results", type=Path, default=Path("results/retrained"))
    parser.add_argument("--list", action="store_true", help="print the commands and run none")
    args = parser.parse_args()
    todo = jobs(args.runs, args.results)
    if args.list:
        print("\n".join("pnml " + " ".join(job.words) for job in todo))
        return
    while True:
        ready = [job for job in todo if job.is_ready]
        running = [job for job in todo if job.is_running]
        if not ready and not running:
            break
        for job in ready[: max(0, args.jobs - len(running))]:
            print(f"{time.strftime('%H:%M:%S')} {job.name}", flush=True)
            job.start(args.runs / "logs")
        time.sleep(1)
    failed = [job.name for job in todo if job.process is None or job.process.returncode]
    if failed:
        sys.exit(f"failed or never ready, see {args.runs / 'logs'}: {', '.join(failed)}")


if __name__ == "__main__":
    main()
