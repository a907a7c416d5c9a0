"""Run commands on hostile files: whatever a file holds, the answer is a result or one line that names the file.

    python -m studies.checks.fuzz --inputs 10000 --processes 8 --results fuzz.jsonl     a campaign
    python -m studies.checks.fuzz --only 1234 --keep DIR                                one input again, with its files

Every input is a valid file that was damaged, renamed or written with an odd structure, and a command that reads it. Its
number and the seed decide which. A process runs 100 of them, so that a crash of one is seen and named.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Timer

from studies.checks.campaign_files import TARGETS, make_files
from studies.checks.campaign_results import Clock, Results, add_options
from studies.checks.fuzz_case import Case, memory_of

BLOCK = 100
ADDRESS_SPACE = 4 << 30  # over what the process has after its first valid inputs


def run_block(seed: int, numbers: list[int], folder: Path) -> None:
    """Run some inputs in this process; print a line of JSON before and after each."""
    warnings.simplefilter("ignore")
    for target in TARGETS:  # the valid files: they are read without an error, and what is imported stays
        valid = Case(seed, 0, folder / "valid", target)
        found = valid.run(folder / "case")
        if found["refused"]:
            sys.exit(f"{valid}: {found}")
        _remove_case(folder)
    most = memory_of("VmSize") + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in numbers:
        print(json.dumps({"input": number}), flush=True)
        case = Case(seed, number, folder / "valid")
        print(json.dumps({"input": number, "found": case.run(folder / "case")}), flush=True)
        _remove_case(folder)


def _remove_case(folder: Path) -> None:
    os.chdir(folder)
    shutil.rmtree(folder / "case", ignore_errors=True)


class Campaign:
    """Runs inputs in other processes, and keeps what they print."""

    def __init__(self, seed: int, folder: Path, clock: Clock, results: Results) -> None:
        self.seed, self.folder, self.clock, self.results = seed, folder, clock, results
        self.started: set[int] = set()

    def run(self, numbers: list[int]) -> None:
        """Run a block of inputs until they are done or the time is up; go on after one that ends its process."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        shutil.copytree(self.folder / "valid", folder / "valid")
        while numbers and self.clock.left():
            last, code, said = self._block(numbers, folder)
            numbers = [number for number in numbers if number not in self.started]
            if code and self.clock.left():
                if last is None:
                    raise RuntimeError(f"no input was begun: {said}")
                self.results.add(self.name(last), what="?", wrong=[f"the process ended with {code}: {said}"])
        shutil.rmtree(folder)

    def name(self, number: int) -> str:
        return f"{self.seed}:{number}"

    def _block(self, numbers: list[int], folder: Path) -> tuple[int | None, int, str]:
        """Run a process; return the input that it had begun last, its exit code, and the end of what it said."""
        _remove_case(folder)
        words = ["--seed", self.seed, "--block", folder, "--numbers", ",".join(map(str, numbers))]
        last = None
        with (folder / "said").open("w+b") as said:
            child = subprocess.Popen(  # noqa: S603 - this program
                [sys.executable, "-m", "studies.checks.fuzz", *map(str, words)],
                stdout=subprocess.PIPE,
                stderr=said,
                cwd=Path(__file__).parents[2],
            )
            end = Timer(min(self.clock.left(), 1e6), child.kill)
            end.start()
            with child:
                for line in child.stdout or ():
                    if not line.startswith(b'{"input"'):
                        continue
                    report = json.loads(line)
                    last = report["input"]
                    self.started.add(last)
                    if "found" in report:
                        self.results.add(self.name(last), **report["found"])
            end.cancel()
            said.seek(0)
            return last, child.returncode, said.read()[-2000:].decode("utf-8", "replace")


def campaign(seed: int, numbers: list[int], processes: int, clock: Clock, results: Results) -> None:
    """Run those inputs that have no result yet, until all have or the time is up."""
    with tempfile.TemporaryDirectory() as made, ThreadPoolExecutor(processes) as pool:
        make_files(Path(made) / "valid")
        running = Campaign(seed, Path(made), clock, results)
        todo = [number for number in numbers if running.name(number) not in results]
        for _ in pool.map(running.run, [todo[start : start + BLOCK] for start in range(0, len(todo), BLOCK)]):
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--inputs", type=int, default=10_000)
    add_options(parser)
    parser.add_argument("--only", type=int, help="run this input alone")
    parser.add_argument("--keep", type=Path, help="with --only: a new folder for its files")
    parser.add_argument("--block", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--numbers", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.block is not None:
        run_block(given.seed, [int(number) for number in given.numbers.split(",")], given.block)
        return
    if given.only is not None:
        folder = (given.keep or Path(tempfile.mkdtemp())).absolute()
        make_files(folder / "valid")
        case = Case(given.seed, given.only, folder / "valid")
        print(json.dumps(case.run(folder / "case"), indent=1), folder, sep="\n")
        return
    results = Results(given.results)
    numbers = [*range(given.first, given.first + given.inputs)]
    campaign(given.seed, numbers, given.processes, Clock(given.seconds), results)
    most = f"at most {max(results.all('seconds'), default=0)} s and {max(results.all('megabytes'), default=0)} MB"
    refused = sum(results.all("refused"))
    print(f"{refused:,} refused; {most} for one input")
    print(f"{len(results.found):,} inputs, {results.count_wrong():,} wrong answers")
    sys.exit(results.count_wrong() > 0)


if __name__ == "__main__":
    main()
