"""Scoring is resumed after a kill, a full disk, or a failure while the parts are joined."""

from __future__ import annotations

import errno
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import pnml.io.embeddings
from pnml import Detector

from .cli_files import FEATURES, Files, fails, make_files, run, stop_after, succeeds, table_of

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK_ROWS = 7
PART_ROWS = 16 * CHUNK_ROWS

SLOWLY = """
import sys, time
import pnml.io.embeddings as embeddings
from pnml.cli import app

embeddings.CHUNK_BYTES = {chunk_bytes}
plain = embeddings.EmbeddingFile.chunks

def slow(self, start=0):
    for chunk in plain(self, start):
        time.sleep({pause})
        yield chunk

embeddings.EmbeddingFile.chunks = slow
app()
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(pnml.io.embeddings, "CHUNK_BYTES", 8 * FEATURES * CHUNK_ROWS)
    files = make_files(tmp_path)
    np.save(files / "many.npy", np.random.default_rng(1).normal(size=(1000, FEATURES)).astype(np.float32))
    return files


def start(files: Files, out: Path, pause: float) -> subprocess.Popen[str]:
    code = SLOWLY.format(chunk_bytes=8 * FEATURES * CHUNK_ROWS, pause=pause)
    words = ["score", files / "detector.safetensors", "--embeddings", files / "many.npy", "--out", out]
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_killed_run_is_resumed_without_losing_or_doubling_a_row(files: Files) -> None:
    detector, out, parts = files.fitted(calibrated=True), files / "scores.csv", files / "scores.csv.parts"
    for wanted in (1, 4):
        process = start(files, out, pause=0.005)
        while len(list(parts.glob("*.npz"))) < wanted:
            assert process.poll() is None, process.communicate()
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not out.exists()
    done = max(int(file.stem.split("-")[2]) for file in parts.glob("*.npz"))
    assert 4 * PART_ROWS <= done < 1000
    process = start(files, out, pause=0)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert f"resuming: {done} of 1,000 rows are scored already" in said
    assert not parts.exists()
    table = table_of(out)
    assert table["id"] == list(range(1000))
    succeeds("score", detector, "--embeddings", files / "many.npy", "--out", files / "whole.csv")
    assert table == table_of(files / "whole.csv")


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_full_disk_leaves_whole_parts_and_the_run_is_resumed(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    detector, out = files.fitted(), files / "out" / "scores.csv"
    words = ("score", detector, "--embeddings", files / "many.npy", "--out", out)
    with monkeypatch.context() as patch:
        stop_after(2, patch, OSError(errno.ENOSPC, "No space left on device"))
        assert "the disk is full" in fails(*words)
    left = ["_manifest.json", "rows-000000000000-000000000112.npz", "rows-000000000112-000000000224.npz"]
    assert files_in(out.parent) == ["scores.csv.parts", *(f"scores.csv.parts/{name}" for name in left)]
    rows: list[int] = []
    monkeypatch.setattr(Detector, "__call__", counted(Detector.__call__, rows))
    succeeds(*words)
    assert sum(rows) == 1000 - 2 * PART_ROWS
    assert table_of(out)["id"] == list(range(1000))


def counted(method: Callable[..., Any], rows: list[int]) -> Callable[..., Any]:
    def call(self: Detector, embeddings: Any, **options: Any) -> Any:
        rows.append(len(embeddings))
        return method(self, embeddings, **options)

    return call


def test_disk_full_while_joining_leaves_no_partial_table(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    detector, out = files.fitted(), files / "out" / "scores.parquet"
    words = ("score", detector, "--embeddings", files / "many.npy", "--out", out)
    plain = pq.ParquetWriter.write_table
    tables = iter(range(1000))

    def write_table(self: Any, table: Any) -> None:
        if next(tables) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(self, table)

    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", write_table)
        assert "the disk is full" in fails(*words)
    assert {Path(name).suffix for name in files_in(out.parent)} == {".parts", ".npz", ".json"}
    monkeypatch.setattr(Detector, "__call__", None)  # nothing is left to score
    result = run(*words)
    assert "resuming: 1,000 of 1,000 rows are scored already" in result.stderr
    assert table_of(out)["id"] == list(range(1000))
    assert files_in(out.parent) == ["scores.parquet"]


@pytest.fixture
def stopped(files: Files, monkeypatch: pytest.MonkeyPatch) -> tuple[Files, tuple[object, ...]]:
    """A run stopped after two parts, and its command."""
    words = ("score", files.fitted(), "--embeddings", files / "many.npy", "--out", files / "scores.csv")
    with monkeypatch.context() as patch:
        stop_after(2, patch, OSError("power failure"))
        assert "power failure" in fails(*words)
    return files, words


Stopped = tuple[Files, tuple[object, ...]]


def calibrate_detector(files: Files) -> None:
    succeeds("calibrate", files / "detector.safetensors", "--embeddings", files / "held.npy")


def test_changed_detector_is_refused(stopped: Stopped) -> None:
    files, words = stopped
    calibrate_detector(files)
    before = files_in(files.folder)
    assert "the detector changed. Undo the change to resume, or start over with --restart" in fails(*words)
    assert files_in(files.folder) == before
    succeeds(*words, "--restart")
    rows = np.load(files / "many.npy")
    regret = Detector.load(files / "detector.safetensors").score(rows)
    np.testing.assert_allclose(table_of(files / "scores.csv")["regret"], regret, rtol=1e-5)


def test_leftovers_of_a_killed_writer_are_ignored_and_deleted(stopped: Stopped) -> None:
    files, words = stopped
    (files / "scores.csv.parts" / ".rows-000000000224-000000000336.npz.1.partial").write_bytes(b"half")
    succeeds(*words)
    assert table_of(files / "scores.csv")["id"] == list(range(1000))
    assert not (files / "scores.csv.parts").exists()


def lose_part(part: Path) -> None:
    part.unlink()


def empty_part(part: Path) -> None:
    part.write_bytes(b"")


def truncate_part(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:300])


def overwrite_part(part: Path) -> None:
    content = bytearray(part.read_bytes())
    content[200:400] = bytes(200)
    part.write_bytes(content)


@pytest.mark.parametrize("damage", [lose_part, empty_part, truncate_part, overwrite_part])
def test_rows_of_a_damaged_part_are_scored_again(
    damage: Callable[[Path], None], stopped: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, words = stopped
    damage(files / "scores.csv.parts" / "rows-000000000000-000000000112.npz")
    rows: list[int] = []
    monkeypatch.setattr(Detector, "__call__", counted(Detector.__call__, rows))
    succeeds(*words)
    assert sum(rows) == 1000 - PART_ROWS
    whole = files / "whole.csv"
    succeeds(*words[:-1], whole)
    assert (files / "scores.csv").read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("content", ["{", "[1]"])
def test_damaged_manifest_is_refused(content: str, stopped: Stopped) -> None:
    files, words = stopped
    (files / "scores.csv.parts" / "_manifest.json").write_text(content)
    said = fails(*words)
    assert "damaged" in said
    assert said.endswith("delete that folder")
    assert fails(*words, "--restart") == said
    assert not (files / "scores.csv").exists()
    shutil.rmtree(files / "scores.csv.parts")
    succeeds(*words)
    assert table_of(files / "scores.csv")["id"] == list(range(1000))


def test_run_killed_while_it_deletes_parts_can_be_run_again(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("score", files.fitted(), "--embeddings", files / "many.npy", "--out", files / "scores.csv")
    plain, removed = Path.unlink, iter(range(1000))

    def unlink(self: Path, *, missing_ok: bool = False) -> None:
        if not missing_ok and next(removed) == 4:
            raise OSError("power failure")
        plain(self, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        assert "power failure" in fails(*words)
    first = table_of(files / "scores.csv")
    succeeds(*words)
    assert table_of(files / "scores.csv") == first
    assert not (files / "scores.csv.parts").exists()


def test_input_that_fills_its_parts_exactly_is_scored(files: Files) -> None:
    np.save(files / "many.npy", np.load(files / "many.npy")[: 2 * PART_ROWS])
    succeeds("score", files.fitted(), "--embeddings", files / "many.npy", "--out", files / "scores.csv")
    assert table_of(files / "scores.csv")["id"] == list(range(2 * PART_ROWS))
