"""Train every network whose checkpoint cannot be had, tune it, and run the benchmark on it.

``python benchmarks/retrained.py --jobs 3`` keeps three commands running at a time, each as soon as what it needs is
there, and goes on where it stopped when it is started again: every command is one of ``pnml train`` or ``pnml bench``,
and both resume. Trainings come first, in the order of the list; ODIN and Gram, which leave a GPU no room for others,
when all else is done.
Weights go to ``runs/``, results to the study ``retrained`` of ``results/``, what the commands print to ``runs/logs``.
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
    ("resnet-34", "cifar10"): (90, 512, 0.4),
    ("resnet-34", "cifar100"): (90, 512, 0.4),
    ("wideresnet-40-2", "cifar10"): (42, 256, 0.2),
    ("wideresnet-40-2", "cifar100"): (42, 256, 0.2),
    ("resnet-34", "svhn"): (80, 256, 0.2),
}
TUNINGS = {"resnet-34": "oecc", "wideresnet-40-2": "energy"}
METHODS = {"resnet-34": "baseline,energy", "wideresnet-40-2": "baseline", "resnet-20": "baseline,energy"}
HEAVY = {"resnet-34": ("odin", "gram")}


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


def jobs(runs: Path, results: Path) -> tuple[list[Job], list[Job]]:
    """List the commands, the most urgent first, and those that must wait for all of these."""
    trainings, tunings, benches, heavy = [], [], [], []
    for (model, ind), (epochs, batch, lr) in TRAININGS.items():
        about = ["train", "--model", model, "--dataset", ind]
        weights = runs / f"{model}_{ind}.safetensors"
        schedule = ["--epochs", str(epochs), "--batch-size", str(batch), "--lr", str(lr)]
        trainings.append(Job(weights.stem, [*about, *schedule, "--out", str(weights)]))
        benches.append(_bench(model, ind, METHODS[model], weights, results))
        heavy += [_bench(model, ind, method, weights, results) for method in HEAVY.get(model, ())]
        if tune := TUNINGS.get(model):
            tuned = runs / f"{model}-{tune}_{ind}.safetensors"
            outliers = ["--outliers", "rooms_resize", "--outliers", "transformed"]
            words = [*about, "--tune", tune, "--from", str(weights), *outliers, "--out", str(tuned)]
            tunings.append(Job(tuned.stem, words, weights))
            (heavy if tune == "oecc" else benches).append(_bench(model, ind, tune, tuned, results))
    return trainings + tunings + benches, heavy


def _bench(model: str, ind: str, methods: str, weights: Path, results: Path) -> Job:
    words = ["bench", "--model", model, "--ind", ind, "--ood", ",".join(OOD[ind]), "--method", methods]
    words += ["--checkpoint", str(weights), "--out", str(results), "--study", "retrained"]
    return Job(f"bench_{weights.stem}_{methods.replace(',', '-')}", words, weights)


def run(todo: list[Job], at_a_time: int, logs: Path) -> list[str]:
    """Run all commands that become ready, and name those that failed or never were."""
    while True:
        ready = [job for job in todo if job.is_ready]
        running = [job for job in todo if job.is_running]
        if not ready and not running:
            return [job.name for job in todo if job.process is None or job.process.returncode]
        for job in ready[: max(0, at_a_time - len(running))]:
            print(f"{time.strftime('%H:%M:%S')} {job.name}", flush=True)
            job.start(logs)
        time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="commands at a time")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--list", action="store_true", help="print the commands and run none")
    args = parser.parse_args()
    first, heavy = jobs(args.runs, args.results)
    if args.list:
        print("\n".join("pnml " + " ".join(job.words) for job in first + heavy))
        return
    failed = run(first, args.jobs, args.runs / "logs") + run(heavy, args.jobs, args.runs / "logs")
    if failed:
        sys.exit(f"failed or never ready, see {args.runs / 'logs'}: {', '.join(failed)}")


if __name__ == "__main__":
    main()
