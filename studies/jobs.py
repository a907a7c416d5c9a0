"""Commands of pnml as processes, some at a time, in the order of their urgency.

A program of this folder makes a ``Plan`` of trainings and benches and calls ``run_program``. Every job is a process of
its own. It starts as soon as the weights that it needs are there, and goes on where it stopped when the program is
started again; a job that has ended is not run again. Weights go to ``OUT/weights``, what a command prints to
``OUT/logs``, and the results of each job to a folder of its own in ``OUT/results``, as several processes must not write
one table; each sample's scores are kept there, for figures.
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
from typing import TYPE_CHECKING

from pnml_bench.store import ResultStore
from studies.trainings import note_trainings

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass
class Job:
    """A command of pnml or a study's program, the weights it needs, and how urgent it is: 0 most of all."""

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
        return sorted(self.all_jobs(), key=lambda job: job.urgency)

    def all_jobs(self) -> Iterable[Job]:
        """List the commands in any order."""
        raise NotImplementedError

    def train(self, model: str, ind: str, weights: Path, urgency: int, *more: str) -> Job:
        """Return the training whose network goes to the file ``weights``."""
        words = ["-m", "pnml", "train", "--model", model, "--dataset", ind, "--float16", "--out", str(weights), *more]
        for pattern, epochs in (given.split("=") for given in self.epochs):
            words += ["--epochs", epochs] if fnmatch(weights.stem, pattern) else []
        return Job(f"train_{weights.stem}", [*words, *self.shared()], urgency, trains=True)

    def bench(  # noqa: PLR0917 - the words of one command
        self,
        name: str,
        model: str,
        ind: str,
        methods: str,
        oods: Iterable[str],
        weights: Path | None,
        urgency: int,
        options: Iterable[str],
    ) -> Job:
        """Return the run of the benchmark on the network of ``weights``, or on the published one."""
        name = name.replace(",", "-")
        words = ["-m", "pnml", "bench", "--model", model, "--ind", ind, "--method", methods, "--ood", ",".join(oods)]
        words += ["--out", str(self.out / "results" / name), "--keep-scores", *options, *self.shared()]
        words += ["--weights", str(weights)] if weights is not None else []
        return Job(name, words, urgency, weights)

    def shared(self) -> list[str]:
        """Return the options of every command."""
        limit = ["--limit", str(self.limit)] if self.limit is not None else []
        return ["--device", self.device, *limit]


class Scheduler:
    """Runs jobs as processes, some trainings and some benches at a time.

    With ``wait`` it does not end while a job lacks weights, which another program may be writing.
    """

    def __init__(self, jobs: list[Job], out: Path, *, trainings: int, benches: int, wait: bool = False) -> None:
        self.jobs = jobs
        self.out = out
        self.room = {True: trainings, False: benches}
        self.wait = wait
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
            if not running and not ready and not self.wait:
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
    """Append the results of every job to the tables of a folder, note its trainings, and return how many results."""
    store, count = ResultStore(results), 0
    for cells in sorted((out / "results").glob("*/cells.csv")):
        for result in ResultStore(cells.parent).load():
            store.append(result)
            count += 1
    note_trainings(out / "weights", results)
    return count


def run_program(doc: str | None, plan: type[Plan]) -> None:
    """Do what the options of the program say: run the jobs of its plan, list them, or collect their results."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--trainings", type=int, default=1, help="trainings at a time")
    parser.add_argument("--benches", type=int, default=1, help="other commands at a time")
    parser.add_argument("--only", action="append", help="names of jobs, with * and ?; may be repeated")
    parser.add_argument("--wait", action="store_true", help="for weights that another program writes")
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
    jobs = plan(args.out.absolute(), args.limit, tuple(args.epochs), args.device).jobs()
    jobs = [job for job in jobs if not args.only or any(fnmatch(job.name, pattern) for pattern in args.only)]
    if args.list:
        print("\n".join(f"{job.urgency} {job.name}: python {' '.join(job.words)}" for job in jobs))
    elif args.status:
        print(status(jobs, args.out))
    elif args.collect:
        print(f"{collect(args.out, args.collect)} results added to {args.collect}")
    else:
        os.environ.setdefault("OMP_NUM_THREADS", "2")
        scheduler = Scheduler(jobs, args.out, trainings=args.trainings, benches=args.benches, wait=args.wait)
        if failed := scheduler.run():
            sys.exit(f"failed or never ready, see {args.out / 'logs'}: {', '.join(failed)}")
