"""Kill commands at every file event, run them again, and see that nothing is lost, doubled or left over.

The temporary file of a writer that was killed is passed over: the next one deletes it a day later.

    python -m studies.checks.crashes --processes 8 --results kills.jsonl     every command, every event
    python -m studies.checks.crashes --scenario fit --every 5

A file event is whatever creates, renames, deletes or locks a file in the command's folder. A process that ends there
without a word is what ``kill -9`` leaves. Before a rename, the file is also cut in half, as if the process had ended
while it wrote. Afterwards the same command runs to its end: the files have to be those of a run that was never killed.
What Ray's workers write is no event of the command itself, which is killed when their first file is there, and so on.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures import TimeoutError as TimeIsUp
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch  # noqa: F401 - once, for all copies of this process

from pnml.cli import app
from pnml.io import embeddings
from studies.checks.campaign_results import Clock, Results, add_options
from studies.checks.crash_hooks import KILLED, EventKiller, PartKiller
from studies.checks.crash_scenarios import CALLS, SCENARIOS, Scenario, make_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Content = dict[str, bytes]
    Killer = EventKiller | PartKiller

MOST_SECONDS = 300  # of one command
_RUN = re.compile(rb'"run": "[0-9a-f]+"')


class Point(NamedTuple):
    """Where a command is killed: before an event, before one with its file cut in half, or when parts are there."""

    scenario: str
    number: int
    kind: str

    def __str__(self) -> str:
        return f"{self.scenario}, killed at {self.kind} {self.number}"


class Whole(NamedTuple):
    """A scenario without a kill: its file events, its files before and after, and the files that it reads."""

    events: list[str]
    before: Content
    after: Content
    inputs: Content


class Campaign:
    """Runs scenarios in forked processes of this one, which imports everything once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known: dict[str, Whole] = {}

    def whole(self, name: str) -> Whole:
        """Run a scenario to its end, unless it is known; without events if it fails."""
        if name not in self.known:
            scenario = SCENARIOS[name]
            before, folder = _content(self._prepare(scenario, "untouched")), self._prepare(scenario, "whole")
            log = self.folder / "events"
            log.write_bytes(b"")
            is_done = self._command(scenario, folder, EventKiller(folder, log=log)) == 0
            events = log.read_text().split() if is_done else []
            self.known[name] = Whole(events, before, _content(folder), _content(self.folder / "valid"))
        return self.known[name]

    def points(self, name: str, every: int) -> list[Point]:
        """Return where a command can be killed, none if it does not run to its end without a kill."""
        whole = self.whole(name)
        found = [Point(name, number, "event") for number in range(1, len(whole.events) + 1, every)]
        found += [one._replace(kind="torn event") for one in found if whole.events[one.number - 1] == "os.rename"]
        parts = len(list((self.folder / "whole").glob("out/rows-*"))) if SCENARIOS[name].is_remote else 0
        return found + [Point(name, number, "part") for number in range(1, parts + 1, every)]

    def run(self, point: Point) -> tuple[int, list[str]]:
        """Kill a command there, and once more elsewhere; run it to its end; return the kills and what is wrong."""
        scenario, whole = SCENARIOS[point.scenario], self.whole(point.scenario)
        case = self._prepare(scenario, "case")
        wrong, kills = [], 0
        killer: Killer = PartKiller(case / "out", point.number)
        if point.kind != "part":
            killer = EventKiller(case, point.number, torn=point.kind == "torn event")
        if self._command(scenario, case, killer) == KILLED:
            kills += 1
        elif point.kind != "part":  # the last of Ray's files may be there when the command ends
            wrong.append("it went on")
        wrong += _check_killed(case, whole)
        if self._command(scenario, case, EventKiller(case, 1 + 7 * point.number % len(whole.events))) == KILLED:
            kills += 1
            wrong += [f"killed again: {one}" for one in _check_killed(case, whole)]
        code, found = self._command(scenario, case), _content(case)
        if code and not (scenario.is_done_once and found == whole.after):
            wrong.append(f"it does not run again: it ends with {code}")
        if odd := sorted(path for path in {*found, *whole.after} if found.get(path) != whole.after.get(path)):
            wrong.append(f"after it ran again, other than without a kill: {odd}")
        if _content(self.folder / "valid") != whole.inputs:
            wrong.append("an input changed")
        return kills, wrong

    def _prepare(self, scenario: Scenario, name: str) -> Path:
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file in scenario.beside:
            source = self.folder / "valid" / file
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, folder / file)
        return folder

    def _command(self, scenario: Scenario, folder: Path, killer: Killer | None = None) -> int:
        """Run a command in a new process; return its exit code."""
        return in_new_process(lambda: _run(scenario.words.split(), folder, killer))


def in_new_process(work: Callable[[], Any]) -> int:
    """Do some work in a copy of this process, and return its exit code."""
    child = os.fork()
    if child == 0:
        signal.alarm(MOST_SECONDS)
        try:
            work()
        except SystemExit as end:
            os._exit(int(end.code or 0))
        except BaseException as error:  # noqa: BLE001 - a copy of this process must not go on
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run(words: list[str], folder: Path, killer: Killer | None) -> None:
    os.chdir(folder)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    embeddings.CHUNK_BYTES = 8 * 8 * 5
    if killer is not None:
        killer.start()
    if words[0] in CALLS:
        CALLS[words[0]](*words[1:])
    else:
        app(words)


def _check_killed(case: Path, whole: Whole) -> list[str]:
    """Return what is wrong with a killed command's files: one is neither the old nor the new one, or is gone."""
    found, before, after = _content(case), whole.before, whole.after
    wrong = [
        f"{path} is neither the old nor the new one"
        for path in {*before, *after} & found.keys()
        if found[path] not in {before.get(path), after.get(path)}
    ]
    return wrong + [f"{path} is gone" for path in before if path not in found]


def _content(folder: Path) -> Content:
    """Return the files of a folder by their paths, and its folders; without what names a run of Ray."""
    content = {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts and not path.match(".*.pnml-*.partial")
    }
    return {path: _RUN.sub(b"", found) if path.endswith("_manifest.json") else found for path, found in content.items()}


_campaign: Campaign  # of a worker


def _begin(folder: Path) -> None:
    """Give a worker a folder of its own."""
    global _campaign  # noqa: PLW0603 - what a pool calls finds nothing else
    _campaign = Campaign(Path(tempfile.mkdtemp(dir=folder)))
    shutil.copytree(folder / "valid", _campaign.folder / "valid")


def _points(name: str, every: int) -> list[Point]:
    return _campaign.points(name, every)


def _run_point(point: Point) -> tuple[Point, int, list[str]]:
    return point, *_campaign.run(point)


def campaign(names: Iterable[str], every: int, processes: int, clock: Clock, results: Results) -> None:
    """Kill commands wherever there is no result yet, until all have one or the time is up."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        if in_new_process(lambda: make_inputs(folder / "valid")):
            sys.exit("the files that commands read cannot be made")
        pool = ProcessPoolExecutor(processes, get_context("fork"), _begin, (folder,))
        points = []
        for name, found in [(name, pool.submit(_points, name, every)) for name in names]:
            points += found.result()
            if not found.result():
                results.add(name, wrong=["it does not run to its end without a kill"])
        random.Random(0).shuffle(points)  # noqa: S311 - so that a part of them is a part of every command
        running = [pool.submit(_run_point, point) for point in points if str(point) not in results]
        try:
            for done in as_completed(running, min(clock.left(), 1e6)):
                point, kills, wrong = done.result()
                results.add(str(point), scenario=point.scenario, kills=kills, wrong=wrong)
        except TimeIsUp:
            print("the time is up", flush=True)
        pool.shutdown(cancel_futures=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append", help="only this one; may be repeated")
    parser.add_argument("--every", type=int, default=1, help="kill at every n-th event only")
    add_options(parser)
    given = parser.parse_args()
    results = Results(given.results)
    names = []
    for name in given.scenario or SCENARIOS:
        if reason := SCENARIOS[name].reason_to_skip:
            results.add(name, skipped=reason)
            print(f"{name}: left out, {reason}")
        else:
            names.append(name)
    campaign(names, given.every, given.processes, Clock(given.seconds), results)
    for name, count in Counter(results.all("scenario")).items():
        print(f"{name}: {count} points")
    points, kills = len(results.all("scenario")), sum(results.all("kills"))
    print(f"{points:,} points, {kills:,} kills, {results.count_wrong():,} wrong")
    sys.exit(results.count_wrong() > 0)


if __name__ == "__main__":
    main()
