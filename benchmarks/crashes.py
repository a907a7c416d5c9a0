"""Kill commands at every file event, run them again, and see that nothing is lost, doubled or left over.

    python benchmarks/crashes.py                          every command, every event
    python benchmarks/crashes.py --scenario fit --every 5

A file event is whatever creates, renames, deletes or locks a file in the command's folder. A process that ends there
without a word is what ``kill -9`` leaves. Before a rename, the file is also cut in half, as if the process had ended
while it wrote. Afterwards the same command runs to its end: the files have to be those of a run that was never killed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch  # noqa: F401 - once, for all copies of this process
from campaign_files import FEATURES, VALID, make_files

from pnml.cli import app
from pnml.io import embeddings

if TYPE_CHECKING:
    from collections.abc import Callable

KILLED = 9
_EVENTS = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"})


@dataclass(frozen=True)
class Scenario:
    """A command that writes.

    Attributes:
        words: of the command.
        beside: valid files that it changes, copied into its folder.
    """

    words: str
    beside: tuple[str, ...] = ()


_SCORE = f"score {VALID}/detector.safetensors --embeddings {VALID}/many.npy --out"
_IMAGES = f"--model made_here:create --weights {VALID}/model.safetensors --images {VALID}/pictures"
SCENARIOS = {
    "fit": Scenario(f"fit --embeddings {VALID}/many.npy --head {VALID}/head.npz --out out.safetensors"),
    "fit again": Scenario(
        f"fit --embeddings {VALID}/many.npy --head {VALID}/head.npz --out detector.safetensors",
        ("detector.safetensors",),
    ),
    "fit images": Scenario(f"fit {_IMAGES} --out out.safetensors", ("made_here.py",)),
    "calibrate": Scenario(f"calibrate detector.safetensors --embeddings {VALID}/rows.npy", ("detector.safetensors",)),
    "score to csv": Scenario(f"{_SCORE} out.csv"),
    "score to parquet": Scenario(f"{_SCORE} out.parquet"),
    "score again": Scenario(f"{_SCORE} scores.csv", ("scores.csv",)),
    "score images": Scenario(
        f"score {VALID}/guarded.safetensors {_IMAGES} --batch-size 1 --out out.csv", ("made_here.py",)
    ),
    "report": Scenario(f"report {VALID}/scores.csv --detector {VALID}/detector.safetensors --out out.html"),
    "tables": Scenario(f"tables --results {VALID}/results --out out"),
    "leaderboard": Scenario(f"leaderboard --results {VALID}/results --out out.md"),
    "export": Scenario(
        f"export {VALID}/guarded.safetensors --model made_here:create --weights {VALID}/model.safetensors "
        f"--example-shape 3,4,4 --out out.onnx",
        ("made_here.py",),
    ),
}


class Campaign:
    """Runs scenarios in forked processes of this one, which imports everything once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts: Counter[str] = Counter()

    def run(self, name: str, every: int) -> None:
        """Kill a command at its first event, its second, and so on, up to its last."""
        scenario = SCENARIOS[name]
        whole = self._prepare(scenario, "whole")
        events = self._events(scenario, whole)
        if not events:
            self._complain(name, "it does not run to its end without a kill")
            return
        wanted, inputs = _content(whole), _content(self.folder / "valid")
        before = _content(self._prepare(scenario, "untouched"))
        for number in range(1, len(events) + 1, every):
            for torn in (False, True) if events[number - 1] == "os.rename" else (False,):
                where = f"{name}, killed at event {number} of {len(events)}, {events[number - 1]}{', torn' * torn}"
                case = self._prepare(scenario, "case")
                if not self._kill(name, scenario, case, number, torn=torn):
                    self._complain(where, "it went on")
                self._check_killed(where, case, before, wanted)
                if self._kill(name, scenario, case, 1 + 7 * number % len(events), torn=False):
                    self._check_killed(f"{where}, and again", case, before, wanted)
                if self._command(scenario, case) != 0:
                    self._complain(where, "it does not run again")
                found = _content(case)
                if odd := sorted(path for path in {*found, *wanted} if found.get(path) != wanted.get(path)):
                    self._complain(where, f"after it ran again, other than without a kill: {odd}")
        if _content(self.folder / "valid") != inputs:
            self._complain(name, "an input changed")

    def _events(self, scenario: Scenario, folder: Path) -> list[str]:
        """Run a command to its end; return the names of its file events, none if it fails."""
        log = self.folder / "events"
        log.write_bytes(b"")
        hook = _Killer(folder, log=log)
        return log.read_text().split() if self._command(scenario, folder, hook) == 0 else []

    def _kill(self, name: str, scenario: Scenario, case: Path, number: int, *, torn: bool) -> bool:
        """Run a command until an event; return whether it got there."""
        is_killed = self._command(scenario, case, _Killer(case, number, torn=torn)) == KILLED
        self.counts["kills"] += is_killed
        self.counts[name] += is_killed
        return is_killed

    def _check_killed(self, where: str, case: Path, before: dict[str, bytes], wanted: dict[str, bytes]) -> None:
        """See that the files with the names of results are the old ones, the new ones, or not there."""
        for path, content in _content(case).items():
            if path in {*before, *wanted} and content not in {before.get(path), wanted.get(path)}:
                self._complain(where, f"{path} is neither the old nor the new one")
        if missing := [path for path in before if path not in _content(case)]:
            self._complain(where, f"{missing} is gone")

    def _prepare(self, scenario: Scenario, name: str) -> Path:
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for file in scenario.beside:
            shutil.copyfile(self.folder / "valid" / file, folder / file)
        return folder

    def _command(self, scenario: Scenario, folder: Path, hook: _Killer | None = None) -> int:
        """Run a command in a new process; return its exit code."""
        return in_new_process(lambda: _run(scenario.words.split(), folder, hook))

    def _complain(self, where: str, what: str) -> None:
        self.counts["wrong"] += 1
        print(f"{where}: {what}", flush=True)


def in_new_process(work: Callable[[], Any]) -> int:
    """Do some work in a copy of this process, and return its exit code."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except SystemExit as end:
            os._exit(int(end.code or 0))
        except BaseException as error:  # noqa: BLE001 - a copy of this process must not go on
            print(repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run(words: list[str], folder: Path, hook: _Killer | None) -> None:
    os.chdir(folder)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    embeddings.CHUNK_BYTES = 8 * FEATURES * 5
    if hook is not None:
        sys.addaudithook(hook)
    app(words)


class _Killer:
    """An audit hook that ends the process before an event in a folder; without a number it writes events into a log."""

    def __init__(self, folder: Path, number: int = 0, *, torn: bool = False, log: Path | None = None) -> None:
        self.folder, self.left, self.torn = f"{folder}{os.sep}", number, torn
        self.log = None if log is None else os.open(log, os.O_WRONLY)

    def __call__(self, name: str, args: tuple[Any, ...]) -> None:
        if name not in _EVENTS and not (name == "open" and _writes(args)):
            return
        paths = [os.path.abspath(os.fspath(one)) for one in args if isinstance(one, str | os.PathLike)]  # noqa: PTH100
        if not any(path.startswith(self.folder) and "__pycache__" not in path for path in paths):
            return
        if self.log is not None:
            os.write(self.log, f"{name}\n".encode())
        self.left -= 1
        if self.left == 0:
            if self.torn:
                os.truncate(paths[0], Path(paths[0]).stat().st_size // 2)
            os._exit(KILLED)


def _writes(args: tuple[Any, ...]) -> bool:
    mode, flags = args[1], args[2]
    return any(letter in (mode or "") for letter in "wax+") or bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append", help="only this one; may be repeated")
    parser.add_argument("--every", type=int, default=1, help="kill at every n-th event only")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        campaign = Campaign(Path(made).resolve())
        in_new_process(lambda: _make(Path(made) / "valid"))
        for name in given.scenario or SCENARIOS:
            campaign.run(name, given.every)
            print(f"{name}: {campaign.counts[name]:,} kills", flush=True)
    print(f"{campaign.counts['kills']:,} kills, {campaign.counts['wrong']:,} wrong")
    sys.exit(campaign.counts["wrong"] > 0)


def _make(folder: Path) -> None:
    make_files(folder)
    np.save(folder / "many.npy", np.random.default_rng(1).normal(size=(400, FEATURES)).astype(np.float32))


if __name__ == "__main__":
    main()
