"""What a campaign has done, one line of JSON for each piece: kept when it is ended, gone on with when it runs again.

Files of several machines are added up by writing them one after the other: ``cat a.jsonl b.jsonl > both.jsonl``.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse


class Results:
    """Pieces of work by their names, kept in a file if there is one."""

    def __init__(self, path: Path | None) -> None:
        self.found: dict[str, dict[str, Any]] = {}
        self._path, self._lock = path, Lock()
        if path is not None and path.exists():
            content = path.read_text(encoding="utf-8")
            for line in content.splitlines():
                try:
                    one = json.loads(line)
                except ValueError:  # cut off when a run was ended
                    continue
                self.found[one["name"]] = one
            if not content.endswith("\n"):
                self._append("\n")

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def add(self, name: str, **facts: Any) -> None:
        """Keep what was found out about a piece of work; print what is wrong about it."""
        with self._lock:
            self.found[name] = {"name": name, **facts}
            self._append(json.dumps(self.found[name]) + "\n")
        for wrong in facts.get("wrong", ()):
            print(f"{name}: {facts.get('what', '')}: {wrong}", flush=True)

    def all(self, fact: str) -> list[Any]:
        """Return one fact about every piece of work that has it."""
        return [one[fact] for one in self.found.values() if fact in one]

    def count_wrong(self) -> int:
        """Return how many pieces of work have something wrong about them."""
        return sum(map(bool, self.all("wrong")))

    def _append(self, text: str) -> None:
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every campaign."""
    parser.add_argument("--processes", type=int, default=1, help="how many work at a time")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="end after this time, and keep what is done"
    )
    parser.add_argument(
        "--results", type=Path, help="a file for one line of JSON per piece; what is in it is not redone"
    )


class Clock:
    """The time that is left."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())
