"""Run commands on hostile files: whatever a file holds, the answer is a result or one line that names the file.

    python benchmarks/fuzz.py --inputs 10000              a campaign
    python benchmarks/fuzz.py --only 1234 --keep DIR      one input again, with its files

Every input is a valid file that was damaged, renamed or written with an odd structure, and a command that reads it. Its
number and the seed decide which. Inputs run in processes of 250, so that a crash of one is seen and named.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from campaign_files import TARGETS, Target, make_files
from fuzz_mutations import DAMAGE, ODD
from typer.testing import CliRunner

from pnml.cli import app

BLOCK = 250
MOST_SECONDS = 10.0  # of the processor, which a busy machine does not lengthen
MOST_MEMORY = 256 << 20  # over what the process takes after its first valid inputs
ADDRESS_SPACE = 8 << 30
_OF_THE_REQUEST = "calibration samples cannot support"  # asks for another rate, and names no file
_UNFORESEEN = ("error: unexpected ", "Traceback", "out of memory")


class Case:
    """One hostile file and the command that reads it, made from a number."""

    def __init__(self, seed: int, number: int, valid: Path) -> None:
        rng = np.random.default_rng([seed, number])
        self.valid = valid
        self.target: Target = TARGETS[int(rng.integers(len(TARGETS)))]
        command = self.target.commands[int(rng.integers(len(self.target.commands)))]
        self.words, _, self.streamed = (part.strip() for part in command.partition("<"))
        content = (valid / self.target.file).read_bytes()
        odd = ODD.get(Path(self.target.file).suffix)
        kind = rng.random()
        if kind < 0.03:
            other = TARGETS[int(rng.integers(len(TARGETS)))].file
            self.mutation, self.content = f"renamed {Path(other).suffix}", (valid / other).read_bytes()
        elif kind < 0.05:
            self.mutation, self.content = "text", b"this is no such file\n"
        elif odd is not None and kind < 0.55:
            self.mutation, self.content = odd.__name__, odd(rng, content)
            if rng.random() < 0.2:
                self.content = DAMAGE[0](rng, self.content)
        else:
            damage = DAMAGE[int(rng.integers(len(DAMAGE)))]
            self.mutation, self.content = damage.__name__, damage(rng, content)

    def __str__(self) -> str:
        return f"{self.mutation} of {self.target.file}: pnml {self.words}"

    def write(self, folder: Path) -> None:
        """Write the hostile file and what the command needs beside it."""
        for name in self.target.beside:
            source = self.valid / name
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, folder / name)
        (folder / self.target.file).parent.mkdir(parents=True, exist_ok=True)
        (folder / self.target.file).write_bytes(self.content)

    def run(self, folder: Path) -> list[str]:
        """Run the command in a new folder; return what is wrong with its answer."""
        folder.mkdir()
        self.write(folder)
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        os.chdir(folder)
        begin, memory = time.process_time(), _peak()
        faulthandler.dump_traceback_later(300, exit=True)
        result = CliRunner().invoke(app, self.words.split(), input=self.content if self.streamed else None)
        faulthandler.cancel_dump_traceback_later()
        wrong = []
        if time.process_time() - begin > MOST_SECONDS:
            wrong.append(f"took {time.process_time() - begin:.0f} s")
        if _peak() - memory > MOST_MEMORY:
            wrong.append(f"took {(_peak() - memory) >> 20} MB")
        if not isinstance(result.exception, SystemExit | None) or any(word in result.stderr for word in _UNFORESEEN):
            wrong.append(f"unforeseen: {result.exception!r} {result.stderr[:300]!r}")
        elif result.exit_code:
            wrong += self._refusal(folder, before, result.stderr)
        else:
            wrong += self._answer(folder)
        return wrong

    def _refusal(self, folder: Path, before: dict[Path, bytes], said: str) -> list[str]:
        """Return what is wrong with a refusal: it names no file, or it changed or left files."""
        wrong = []
        file = Path(self.target.file)
        names = (
            ("standard input",) if self.streamed else (file.name, file.parent.name or file.name, *self.target.blamed)
        )
        if not any(name in said for name in (*names, _OF_THE_REQUEST)):
            wrong.append(f"names no file: {said[:300]!r}")
        kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and ".parts" not in str(path)}
        if kept != {path: content for path, content in before.items() if ".parts" not in str(path)}:
            changed = sorted(path.name for path in {*kept, *before} if kept.get(path) != before.get(path))
            wrong.append(f"refused, but changed {changed}")
        return wrong

    def _answer(self, folder: Path) -> list[str]:
        """Return what is wrong with the files that a command wrote."""
        wrong = [f"left {path.name}" for path in folder.rglob("*") if path.suffix in {".partial", ".parts"}]
        table = folder / "out.csv"
        if table.exists():
            header, *lines = table.read_text(encoding="utf-8").splitlines()
            place = header.split(",").index("regret")
            numberless = [line for line in lines if '"' not in line and line.split(",")[place] == "nan"]
            wrong += [f"trusts a regret that is no number: {line}" for line in numberless if "true" not in line]
        if self.target.file == "detector.safetensors":
            score = next(one for one in self.target.commands if one.startswith("score"))
            texts = []
            for name, content in (("own", (self.valid / self.target.file).read_bytes()), ("changed", self.content)):
                (folder / name).mkdir()
                os.chdir(folder / name)
                Path(self.target.file).write_bytes(content)
                CliRunner().invoke(app, score.replace("..", "../..").split())
                texts.append(Path("out.csv").read_bytes() if Path("out.csv").exists() else b"refused")
            if texts[0] != texts[1]:
                wrong.append("a changed detector was accepted")
        return wrong


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def run_block(seed: int, first: int, count: int, folder: Path) -> None:
    """Run some inputs in this process; print a line of JSON before and after each."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in range(first, first + count):
        case = Case(seed, number, folder / "valid")
        print(json.dumps({"input": number}), flush=True)
        wrong = case.run(folder / "case")
        print(json.dumps({"input": number, "target": case.target.file, "what": str(case), "wrong": wrong}), flush=True)
        os.chdir(folder)
        shutil.rmtree(folder / "case")


def campaign(seed: int, first: int, count: int, seconds: float) -> Counter[str]:
    """Run inputs until their number or the time is used up; print what is wrong; return counts."""
    counts: Counter[str] = Counter()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        make_files(Path(made) / "valid")
        while count > 0 and time.monotonic() - begin < seconds:
            size = min(BLOCK, count)
            shutil.rmtree(Path(made) / "case", ignore_errors=True)
            words = ["--seed", seed, "--first", first, "--inputs", size, "--block", made]
            done = subprocess.run(  # noqa: S603 - this program
                [sys.executable, __file__, *map(str, words)],
                capture_output=True,
                check=False,
            )
            reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b'{"input"')]
            for report in reports:
                if "wrong" in report:
                    counts["inputs"] += 1
                    for wrong in report["wrong"]:
                        counts["wrong"] += 1
                        print(f"{report['input']}: {report['what']}: {wrong}", flush=True)
            last = reports[-1]["input"] if reports else first
            if done.returncode:
                counts["wrong"] += 1
                print(f"{last}: the process ended with {done.returncode}: {done.stderr[-2000:].decode()}", flush=True)
            count, first = count - (last + 1 - first), last + 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no more inputs after this time")
    parser.add_argument("--only", type=int, help="run this input alone")
    parser.add_argument("--keep", type=Path, help="with --only: a new folder for its files")
    parser.add_argument("--block", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.block is not None:
        run_block(given.seed, given.first, given.inputs, given.block)
        return
    if given.only is not None:
        folder = (given.keep or Path(tempfile.mkdtemp())).absolute()
        make_files(folder / "valid")
        case = Case(given.seed, given.only, folder / "valid")
        print(case, *case.run(folder / "case"), folder, sep="\n")
        return
    counts = campaign(given.seed, given.first, given.inputs, given.seconds)
    print(f"{counts['inputs']:,} inputs, {counts['wrong']:,} wrong answers")
    sys.exit(counts["wrong"] > 0)


if __name__ == "__main__":
    main()
