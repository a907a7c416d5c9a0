"""One hostile file and the command that reads it, made from a number: what ``fuzz.py`` runs."""

from __future__ import annotations

import faulthandler
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from pnml.cli import app
from studies.checks.campaign_files import TARGETS, Target
from studies.checks.fuzz_mutations import DAMAGE, ODD

ANSWERED = (0, 3)  # done, and done with an alarm
MOST_SECONDS = 10.0  # of the processor, which a busy machine does not lengthen
MOST_MEMORY = 256 << 20  # over what the process has when the input begins
MOST_SECONDS_OF_CLOCK = 300  # then something waits that never comes
_OF_THE_REQUEST = "calibration samples cannot support"  # asks for another rate, and names no file
_UNFORESEEN = ("error: unexpected ", "Traceback", "out of memory")


class Case:
    """One hostile file and the command that reads it, made from a number."""

    def __init__(self, seed: int, number: int, valid: Path, unchanged: Target | None = None) -> None:
        rng = np.random.default_rng([seed, number])
        self.valid = valid
        self.target: Target = unchanged or TARGETS[int(rng.integers(len(TARGETS)))]
        command = self.target.commands[int(rng.integers(len(self.target.commands)))]
        self.words, _, self.streamed = (part.strip() for part in command.partition("<"))
        content = (valid / self.target.file).read_bytes()
        odd = ODD.get(Path(self.target.file).suffix) if self.target.has_odd_structure else None
        kind = rng.random()
        if unchanged is not None:
            self.mutation, self.content = "nothing", content
        elif kind < 0.03:
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

    def run(self, folder: Path) -> dict[str, Any]:
        """Run the command in a new folder; return what is wrong with its answer, and what it took."""
        folder.mkdir()
        self.write(folder)
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        os.chdir(folder)
        faulthandler.dump_traceback_later(MOST_SECONDS_OF_CLOCK, exit=True)
        forget_peak()
        begin, memory = time.process_time(), memory_of("VmHWM")
        result = CliRunner().invoke(app, self.words.split(), input=self.content if self.streamed else None)
        seconds, memory = time.process_time() - begin, memory_of("VmHWM") - memory
        wrong = []
        if seconds > MOST_SECONDS:
            wrong.append(f"took {seconds:.0f} s")
        if memory > MOST_MEMORY:
            wrong.append(f"took {memory >> 20} MB")
        if not isinstance(result.exception, SystemExit | None) or any(word in result.stderr for word in _UNFORESEEN):
            wrong.append(f"unforeseen: {result.exception!r} {result.stderr[:300]!r}")
        elif result.exit_code not in ANSWERED:
            wrong += self._refusal(folder, before, result.stderr)
        else:
            wrong += self._answer(folder)
        faulthandler.cancel_dump_traceback_later()
        took = {"seconds": round(seconds, 1), "megabytes": memory >> 20}
        return {"what": str(self), "refused": result.exit_code not in ANSWERED, **took, "wrong": wrong}

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
        if self.target.whole and table.read_bytes() != (self.valid / self.target.whole).read_bytes():
            wrong.append("other scores than without damage")
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


def memory_of(kind: str) -> int:
    """Return how many bytes Linux counts for this process: VmHWM, the most it had; VmRSS, what it has; VmSize."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(kind)) << 10


def forget_peak() -> None:
    with suppress(OSError):  # where it is not allowed, a peak is seen only if it is higher than those before it
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
