"""``pnml fit --engine ray`` starts a Ray, and stops it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from pnml import Detector

from .files import COVERAGE, embeddings, head, write_folder

pytest.importorskip("ray")


def run(*words: object, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pnml", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={name: value for name, value in {**os.environ, **environment}.items() if name not in COVERAGE},
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("fit ")]  # its bar
    assert lines == []
    return done.stdout


def alive(mark: str) -> list[str]:
    """Return the processes that have a mark in their environment."""

    def is_marked(process: Path) -> bool:
        with suppress(OSError):  # gone by now
            return mark.encode() in (process / "environ").read_bytes()
        return False

    return [process.name for process in Path("/proc").glob("[0-9]*") if is_marked(process)]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are looked up in /proc")
def test_fit_starts_a_ray_and_leaves_no_process(tmp_path: Path) -> None:
    write_folder(tmp_path / "train", embeddings(300), [100, 300], group=50)
    np.savez(tmp_path / "head.npz", weight=head().weight, bias=head().bias)
    words = ("fit", "--embeddings", tmp_path / "train", "--head", tmp_path / "head.npz", "--out", tmp_path / "d.st")
    mark = uuid4().hex
    assert "fitted on 300 rows" in run(*words, "--engine", "ray", "--cpus", 1, PNML_MARK=mark)
    expected = head().fit(embeddings(300)).score(embeddings(50))
    np.testing.assert_allclose(Detector.load(tmp_path / "d.st").score(embeddings(50)), expected, rtol=1e-5)
    for _ in range(100):
        if not (left := alive(mark)):
            break
        time.sleep(0.1)
    assert not left
