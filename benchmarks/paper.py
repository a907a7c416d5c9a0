"""Measure every cell of the paper that can be measured: train, tune and run the benchmark, in the order of their value.

    python benchmarks/paper.py --out runs            # all of it; --trainings and --benches: commands at a time
    python benchmarks/paper.py --out runs --status   # what is done, what is running
    python benchmarks/paper.py --out runs --only 'paper_*' --only 'train_resnet-34_*'
    python benchmarks/paper.py --out runs --collect results   # add all results to the tables in results/

Every job is one command of pnml in a process of its own. It starts as soon as the weights that it needs are there, and
goes on where it stopped when the program is started again; a job that has ended is not run again. Weights go to
``OUT/weights``, what a command prints to ``OUT/logs``, and the results of each job to a folder of its own in
``OUT/results``, as several processes must not write one table; each sample's scores are kept there, for figures.

Studies: ``paper`` (the paper's checkpoints), ``retrained`` (networks trained here by the published recipes) and
``peers-2026-11`` (today's default beside other detectors, on both); the first two also with ``-oracle`` and
``-published``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from pnml.bench.store import ResultStore

INDS = ("cifar10", "cifar100", "svhn")
DENSENET = "densenet-bc-100"
FAR = ("isun", "tinyimagenet_crop", "tinyimagenet_resize_nearest", "uniform", "gaussian")
OTHERS = {"cifar10": ("svhn",), "cifar100": ("svhn",), "svhn": ("cifar10", "cifar100")}
NEAR = {"cifar10": ("cifar100",), "cifar100": ("cifar10",), "svhn": ()}
ANTIALIASED = ("tinyimagenet_resize",)
TRAININGS = (
    ("resnet-34", "cifar10"),
    ("resnet-34", "cifar100"),
    ("wideresnet-40-2", "cifar10"),
    ("wideresnet-40-2", "cifar100"),
    ("resnet-34", "svhn"),
)
TUNINGS = {"resnet-34": "oecc", "wideresnet-40-2": "energy"}
PEERS_STUDY = "peers-2026-11"


@dataclass
class Job:
    """A command of pnml or a program of benchmarks/, the weights it needs, and how urgent it is: 0 most of all."""

    name: str
    words: list[str]
    urgency: int
    needs: Path | None = None
    trains: bool = False
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.process is not None and self.process.poll() is None


@dataclass(frozen=True)
class Plan:
    """Where everything goes, and the options that all commands share."""

    out: Path
    limit: int | None = None
    epochs: tuple[str, ...] = ()
    device: str = "auto"

    def jobs(self) -> list[Job]:
        """List the commands, the most urgent first."""
        found = [*self._trained(), *self._papers()]
        found += [self._peers(DENSENET, ind, None, 2) for ind in INDS]
        found += [self._differences(ind) for ind in INDS]
        return sorted(found, key=lambda job: job.urgency)

    def _papers(self) -> list[Job]:
        """List the benches on the paper's own networks."""
        found = []
        for methods in ("baseline,energy", "gram", "odin", "oecc"):
            for ind in INDS:
                far = (*OTHERS[ind], *FAR, *ANTIALIASED)
                oods = (*far, *NEAR[ind]) if methods == "baseline,energy" else far
                found.append(self._bench(DENSENET, ind, methods, oods))
        return found

    def _trained(self) -> list[Job]:
        """List the trainings, the tunings, and the benches on their networks."""
        found = []
        for model, ind in TRAININGS:
            tune, weights = TUNINGS[model], self.out / "weights" / f"{model}_{ind}.safetensors"
            tuned = weights.with_name(f"{model}-{tune}_{ind}.safetensors")
            found.append(self._train(model, ind, weights, 0))
            outliers = ["--outliers", "rooms_resize", "--outliers", "transformed"]
            found.append(self._train(model, ind, tuned, 0, "--tune", tune, "--from", str(weights), *outliers))
            found[-1].needs = weights
            far = (*OTHERS[ind], *FAR)
            quick = "baseline" if tune == "energy" else "baseline,energy"
            found.append(self._bench(model, ind, quick, (*far, *ANTIALIASED, *NEAR[ind]), weights))
            found += [self._bench(model, ind, one, far, weights) for one in ("gram", "odin") if tune == "oecc"]
            found.append(self._bench(model, ind, tune, far, tuned))
            found.append(self._peers(model, ind, weights, 4))
        return found

    def _train(self, model: str, ind: str, weights: Path, urgency: int, *more: str) -> Job:
        words = ["-m", "pnml", "train", "--model", model, "--dataset", ind, "--float16", "--out", str(weights), *more]
        for pattern, epochs in (given.split("=") for given in self.epochs):
            words += ["--epochs", epochs] if fnmatch(weights.stem, pattern) else []
        return Job(f"train_{weights.stem}", [*words, *self._shared()], urgency, trains=True)

    def _bench(self, model: str, ind: str, methods: str, oods: tuple[str, ...], weights: Path | None = None) -> Job:
        study, urgency = ("paper", 1) if weights is None else ("retrained", 3)
        options = ["--oracle", "--published", "--keep-scores", "--study", study]
        return self._run_bench(f"{study}_{model}_{ind}_{methods}", model, ind, methods, oods, weights, urgency, options)

    def _peers(self, model: str, ind: str, weights: Path | None, urgency: int) -> Job:
        methods, oods = "peers,layers,pnml-published", (*OTHERS[ind], *FAR, *ANTIALIASED, *NEAR[ind])
        options = ["--keep-scores", "--study", PEERS_STUDY]
        return self._run_bench(f"peers_{model}_{ind}", model, ind, methods, oods, weights, urgency, options)

    def _run_bench(  # noqa: PLR0917 - the words of one command
        self,
        name: str,
        model: str,
        ind: str,
        methods: str,
        oods: tuple[str, ...],
        weights: Path | None,
        urgency: int,
        options: list[str],
    ) -> Job:
        name = name.replace(",", "-")
        words = ["-m", "pnml", "bench", "--model", model, "--ind", ind, "--method", methods, "--ood", ",".join(oods)]
        words += ["--out", str(self.out / "results" / name), *options, *self._shared()]
        words += ["--weights", str(weights)] if weights is not None else []
        return Job(name, words, urgency, weights)

    def _differences(self, ind: str) -> Job:
        program = str(Path(__file__).with_name("differences.py"))
        words = [program, "--ind", ind, "--out", str(self.out / "results" / f"differences_{ind}.json")]
        return Job(f"differences_{ind}", [*words, *self._shared()], 5)

    def _shared(self) -> list[str]:
        limit = ["--limit", str(self.limit)] if self.limit is not None else []
        return ["--device", self.device, *limit]


class Scheduler:
    """Runs jobs as processes, some trainings and some benches at a time."""

    def __init__(self, jobs: list[Job], out: Path, *, trainings: int, benches: int) -> None:
        self.jobs = jobs
        self.out = out
        self.room = {True: trainings, False: benches}
        self.failed: list[str] = []
        for folder in ("logs", "done", "results", "weights"):
            (out / folder).mkdir(parents=True, exist_ok=True)

    def done(self, job: Job) -> Path:
        """Return the file that says that a job has ended."""
        return self.out / "done" / job.name

    def run(self) -> list[str]:
        """Run everything that becomes ready, and return the names of what failed or never was ready."""
        waiting = [job for job in self.jobs if not self.done(job).exists()]
        running: list[Job] = []
        while waiting or running:
            for job in [job for job in running if not job.is_running]:
                running.remove(job)
                self._end(job)
            ready = [job for job in waiting if job.needs is None or job.needs.exists()]
            for job in ready:
                if sum(other.trains == job.trains for other in running) < self.room[job.trains]:
                    waiting.remove(job)
                    running.append(job)
                    self._start(job)
            if not running and not ready:
                break
            time.sleep(0.5)
        return self.failed + [job.name for job in waiting]

    def _start(self, job: Job) -> None:
        print(f"{time.strftime('%H:%M:%S')} start {job.name}", flush=True)
        with (self.out / "logs" / f"{job.name}.txt").open("ab") as log:
            job.process = subprocess.Popen([sys.executable, *job.words], stdout=log, stderr=log)  # noqa: S603

    def _end(self, job: Job) -> None:
        code = job.process.returncode if job.process is not None else None
        print(f"{time.strftime('%H:%M:%S')} {'done' if code == 0 else f'failed ({code})'} {job.name}", flush=True)
        if code == 0:
            self.done(job).touch()
        else:
            self.failed.append(job.name)


def status(jobs: list[Job], out: Path) -> str:
    """Return how many jobs are done, and for each that is not its number of results and the last line of its log."""
    done = [job for job in jobs if (out / "done" / job.name).exists()]
    lines = [f"{len(done)} of {len(jobs)} jobs done"]
    for job in jobs:
        log = out / "logs" / f"{job.name}.txt"
        if job not in done and log.exists():
            text = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").strip().splitlines()
            cells = out / "results" / job.name / "cells.csv"
            count = f" {len(cells.read_text(encoding='utf-8').splitlines()) - 1} results," if cells.exists() else ""
            lines.append(f"{job.name}:{count} {' '.join(text[-1].split())[:100] if text else 'started'}")
    return "\n".join(lines)


def collect(out: Path, results: Path) -> int:
    """Append the results of every job to the tables of a folder, and return their number."""
    store, count = ResultStore(results), 0
    for cells in sorted((out / "results").glob("*/cells.csv")):
        for result in ResultStore(cells.parent).load():
            store.append(result)
            count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--trainings", type=int, default=1, help="trainings at a time")
    parser.add_argument("--benches", type=int, default=1, help="other commands at a time")
    parser.add_argument("--only", action="append", help="names of jobs, with * and ?; may be repeated")
    parser.add_argument("--limit", type=int, help="images of every set, for a trial")
    parser.add_argument(
        "--epochs",
        action="append",
        default=[],
        metavar="NAME=N",
        help="other than in the recipe, for a trial or where time is short: '*=1', 'resnet-34_svhn=60'",
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--list", action="store_true", help="print the commands and run none")
    parser.add_argument("--status", action="store_true", help="print what is done and run nothing")
    parser.add_argument("--collect", type=Path, metavar="RESULTS", help="add the results to those of a folder")
    args = parser.parse_args()
    jobs = Plan(args.out.absolute(), args.limit, tuple(args.epochs), args.device).jobs()
    jobs = [job for job in jobs if not args.only or any(fnmatch(job.name, pattern) for pattern in args.only)]
    if args.list:
        print("\n".join(f"{job.urgency} {job.name}: python {' '.join(job.words)}" for job in jobs))
    elif args.status:
        print(status(jobs, args.out))
    elif args.collect:
        print(f"{collect(args.out, args.collect)} results added to {args.collect}")
    else:
        os.environ.setdefault("OMP_NUM_THREADS", "2")
        failed = Scheduler(jobs, args.out, trainings=args.trainings, benches=args.benches).run()
        if failed:
            sys.exit(f"failed or never ready, see {args.out / 'logs'}: {', '.join(failed)}")


if __name__ == "__main__":
    main()
