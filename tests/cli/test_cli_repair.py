"""After an error the repaired input is scored from where it failed: rows that are as they were keep their scores."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

import pnml.io.embeddings
from pnml import Detector
from pnml.io.store import _LocalFolder

from .cli_files import FEATURES, MODEL, Files, fails, fitted_on_images, make_files, run, stop_after, succeeds, table_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

CHUNK_ROWS = 7
PART_ROWS = 16 * CHUNK_ROWS
ROWS = np.random.default_rng(1).normal(size=(1000, FEATURES)).astype(np.float32)
CHANGED = "is not as the earlier run read it: rows that are as they were keep their scores"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(pnml.io.embeddings, "CHUNK_BYTES", 8 * FEATURES * CHUNK_ROWS)
    return make_files(tmp_path)


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of every chunk that is scored."""
    rows: list[int] = []
    plain: Callable[..., Any] = Detector.__call__

    def call(self: Detector, embeddings: Any, **options: Any) -> Any:
        rows.append(len(embeddings))
        return plain(self, embeddings, **options)

    monkeypatch.setattr(Detector, "__call__", call)
    return rows


def write(path: Path, rows: NDArray[np.float32]) -> None:
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".npz":
        np.savez(path, embedding=rows, id=np.array([f"sample {number}" for number in range(len(rows))]))
    else:
        lines = [",".join(map(str, row)) for row in rows]
        path.write_text("\n".join([",".join(f"f{number}" for number in range(FEATURES)), *lines]))


@pytest.mark.parametrize(
    ("suffix", "place"),
    [
        (".npy", "row 300 of {path}, counted from 0, holds nan in column 5"),
        (".npz", "row 300 of {path}, counted from 0 (id sample 300), holds nan in column 5"),
        (".csv", "line 302 of {path} holds 'nan' in column 'f5'"),
    ],
)
def test_repaired_row_is_scored_and_earlier_parts_are_kept(
    suffix: str, place: str, files: Files, scored: list[int]
) -> None:
    path, rows = files / f"many{suffix}", ROWS.copy()
    rows[300, 5] = np.nan
    write(path, rows)
    detector = files.fitted()
    words = ("score", detector, "--embeddings", path, "--out", files / "scores.csv")
    assert place.format(path=path) in fails(*words)
    write(path, ROWS)
    scored.clear()
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert CHANGED in result.stderr
    assert f"resuming: {2 * PART_ROWS} of 1,000 rows are scored already" in result.stderr
    assert sum(scored) == 1000 - 2 * PART_ROWS
    table = table_of(files / "scores.csv")
    np.testing.assert_allclose(table["regret"], Detector.load(detector).score(ROWS), rtol=1e-5)
    succeeds(*words[:-1], files / "whole.csv")
    assert (files / "scores.csv").read_bytes() == (files / "whole.csv").read_bytes()
    assert not (files / "scores.csv.parts").exists()


@pytest.fixture
def words(files: Files, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """The command of a run that was stopped after four parts."""
    np.save(files / "many.npy", ROWS)
    words = ("score", files.fitted(), "--embeddings", files / "many.npy", "--out", files / "scores.csv")
    with monkeypatch.context() as patch:
        stop_after(4, patch, OSError("power failure"))
        assert "power failure" in fails(*words)
    return words


def change_second_part(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    rows[PART_ROWS + 3, 2] += 1
    return rows


def remove_row_of_third_part(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.delete(rows, 2 * PART_ROWS + 50, axis=0)


def shorten(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows[: 3 * PART_ROWS + 20]


def append(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.concatenate([rows, rows[:5] + 1])


def nothing(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows


@pytest.mark.parametrize(
    ("change", "kept"),
    [(change_second_part, 3), (remove_row_of_third_part, 2), (shorten, 3), (append, 4), (nothing, 4)],
)
def test_only_parts_of_unchanged_rows_are_kept(
    change: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    kept: int,
    files: Files,
    words: tuple[object, ...],
    scored: list[int],
) -> None:
    rows = change(ROWS.copy())
    np.save(files / "many.npy", rows)
    os.utime(files / "many.npy", (1, 1))
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert CHANGED in result.stderr
    assert sum(scored) == len(rows) - kept * PART_ROWS
    table = table_of(files / "scores.csv")
    assert table["id"] == list(range(len(rows)))
    regret = Detector.load(files / "detector.safetensors").score(rows)
    np.testing.assert_allclose(table["regret"], regret, rtol=1e-5)


def test_killed_before_the_manifest_is_written_keeps_the_parts_of_the_same_rows(
    files: Files, words: tuple[object, ...], monkeypatch: pytest.MonkeyPatch, scored: list[int]
) -> None:
    rows = change_second_part(ROWS.copy())
    np.save(files / "many.npy", rows)

    def fail(*_: object) -> None:
        raise OSError("power failure")

    with monkeypatch.context() as patch:
        patch.setattr(_LocalFolder, "write", fail)  # of the manifest
        assert "power failure" in fails(*words)
    np.save(files / "many.npy", ROWS)
    scored.clear()
    succeeds(*words)
    assert sum(scored) == 1000 - 4 * PART_ROWS
    regret = Detector.load(files / "detector.safetensors").score(ROWS)
    np.testing.assert_allclose(table_of(files / "scores.csv")["regret"], regret, rtol=1e-5)


def test_changed_input_and_detector_are_refused(files: Files, words: tuple[object, ...]) -> None:
    np.save(files / "many.npy", change_second_part(ROWS.copy()))
    succeeds("calibrate", files / "detector.safetensors", "--embeddings", files / "held.npy")
    assert "the input and the detector changed. Undo the change to resume" in fails(*words)


def test_repaired_image_is_scored_and_earlier_parts_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = (folder / "new" / "0018.png").read_bytes()
    (folder / "new" / "0018.png").write_bytes(b"no picture")
    path = fitted_on_images(folder)
    words = ("score", path, *MODEL, "--images", "new", "--batch-size", "1", "--strict", "--out", "scores.csv")
    assert "0018.png does not decode" in fails(*words)
    (folder / "new" / "0018.png").write_bytes(good)
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert f"new {CHANGED}" in result.stderr
    assert "resuming: 16 of 20 rows are scored already" in result.stderr
    succeeds(*words[:-1], "whole.csv")
    assert table_of(folder / "scores.csv") == table_of(folder / "whole.csv")
    with monkeypatch.context() as patch:
        stop_after(1, patch, OSError("power failure"))
        fails(*words)
    Image.new("RGB", (4, 4)).save(folder / "new" / "0003.png")
    assert "resuming" not in run(*words).stderr
    assert table_of(folder / "scores.csv")["regret"][3] != table_of(folder / "whole.csv")["regret"][3]
