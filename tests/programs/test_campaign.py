"""A slice of the campaigns of hostile files and of kills; by hand they run for hours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def run(program: str, *words: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", f"studies.checks.{program}", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()[-1]


def test_hostile_files_get_a_result_or_one_line_that_names_them() -> None:
    assert run("fuzz", "--seed", 1, "--inputs", 60) == "60 inputs, 0 wrong answers"


@pytest.mark.parametrize("scenario", ["calibrate", "score to csv"])
def test_killed_commands_leave_nothing_and_lose_nothing(scenario: str) -> None:
    assert run("crashes", "--scenario", scenario, "--every", 9).endswith(" kills, 0 wrong")
