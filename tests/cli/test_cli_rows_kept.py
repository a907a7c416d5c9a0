"""No row is lost or doubled: two runs at once, inputs that change while they are read or between runs, links."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pnml.io.embeddings
from pnml import Detector
from pnml.io.embeddings import EmbeddingFile

from .cli_files import FEATURES, MODEL, Files, fails, fitted_on_images, make_files, run, stop_after, succeeds, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

CHUNK_ROWS = 7
PART_ROWS = 16 * CHUNK_ROWS
ROWS = np.random.default_rng(1).normal(size=(1000, FEATURES)).astype(np.float32)

HELD = """
import sys
import pnml.io.embeddings as embeddings
from pnml.cli import app

embeddings.CHUNK_BYTES = {chunk_bytes}
plain = embeddings.EmbeddingFile.chunks

def held(self, start=0):
    for number, chunk in enumerate(plain(self, start)):
        if number == 40:
            print("held", flush=True)
            sys.stdin.readline()
        yield chunk

embeddings.EmbeddingFile.chunks = held
app()
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(pnml.io.embeddings, "CHUNK_BYTES", 8 * FEATURES * CHUNK_ROWS)
    files = make_files(tmp_path)
    np.save(files / "many.npy", ROWS)
    return files


def write_parquet(path: Path, rows: NDArray[np.float32], group: int = 100) -> Path:
    path.parent.mkdir(exist_ok=True)
    table = pa.table({"embedding": pa.FixedSizeListArray.from_arrays(rows.ravel(), rows.shape[1])})
    pq.write_table(table, path, row_group_size=group)
    return path


def regrets(files: Files, rows: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.asarray(Detector.load(files / "detector.safetensors").score(rows))


@pytest.mark.parametrize("more", [(), ("--restart",)])
def test_second_run_on_the_same_output_is_refused_and_the_first_one_ends_whole(
    more: tuple[str, ...], files: Files
) -> None:
    words = ("score", files.fitted(), "--embeddings", files / "many.npy", "--out", files / "scores.csv")
    code = HELD.format(chunk_bytes=8 * FEATURES * CHUNK_ROWS)
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        assert "another run writes to" in fails(*words, *more)
        said, _ = first.communicate("\n")
    assert first.returncode == 0
    assert "scored 1,000 rows" in said
    assert table_of(files / "scores.csv")["id"] == list(range(1000))
    assert not (files / "scores.csv.parts").exists()
    succeeds(*words, *more)


def change_after(chunks: int, change: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the input while it is read."""
    plain = EmbeddingFile.chunks

    def changed(self: EmbeddingFile, start: int = 0) -> Iterator[Any]:
        for number, chunk in enumerate(plain(self, start)):
            if number == chunks:
                change()
            yield chunk

    monkeypatch.setattr(EmbeddingFile, "chunks", changed)


def replace_file(path: Path, rows: NDArray[np.float32], group: int = 100) -> None:
    """Put another file in the place of one, with the same time, and the same size if the shape is the same."""
    status = path.stat()
    other = path.with_name(f"other{path.suffix}")
    write_parquet(other, rows, group) if path.suffix == ".parquet" else np.save(other, rows)
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


COMMANDS: list[tuple[str, tuple[str, ...]]] = [
    ("score", ("score", "{detector}", "--embeddings", "{path}", "--out", "{folder}/scores.csv")),
    ("score on standard output", ("score", "{detector}", "--embeddings", "{path}")),
    ("fit", ("fit", "--embeddings", "{path}", "--head", "{folder}/head.npz", "--out", "{folder}/new.safetensors")),
    ("calibrate", ("calibrate", "{detector}", "--embeddings", "{path}")),
]


@pytest.mark.parametrize("words", [words for _, words in COMMANDS], ids=[name for name, _ in COMMANDS])
@pytest.mark.parametrize(("name", "kept"), [("new.parquet", 1000), ("new.parquet", 960), ("new.npy", 1000)])
def test_file_that_is_replaced_while_it_is_read_is_noticed(
    name: str, kept: int, words: tuple[str, ...], files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, detector = files / name, files.fitted()
    before = detector.read_bytes()
    write_parquet(path, ROWS) if path.suffix == ".parquet" else np.save(path, ROWS)
    change_after(2, lambda: replace_file(path, -ROWS[:kept]), monkeypatch)
    command = [word.format(detector=detector, path=path, folder=files.folder) for word in words]
    assert "changed while" in fails(*command)
    assert not (files / "scores.csv").exists()
    assert not (files / "new.safetensors").exists()
    assert detector.read_bytes() == before


def test_parquet_of_other_row_groups_is_noticed_when_it_is_opened_again(files: Files) -> None:
    path = write_parquet(files / "new.parquet", ROWS)
    samples = pnml.io.embeddings.open_embeddings(path)
    replace_file(path, ROWS, group=96)
    with pytest.raises(ValueError, match="changed while it was read"):
        list(samples.chunks())


def test_resumed_run_rescores_rows_that_changed_though_size_and_time_are_the_same(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("score", files.fitted(), "--embeddings", files / "many.npy", "--out", files / "scores.csv")
    with monkeypatch.context() as patch:
        stop_after(4, patch, OSError("power failure"))
        assert "power failure" in fails(*words)
    status, changed = (files / "many.npy").stat(), ROWS.copy()
    changed[PART_ROWS + 3] *= -1
    with (files / "many.npy").open("r+b") as file:  # the file stays the same, its content does not
        file.seek(status.st_size - ROWS.nbytes)
        file.write(changed.tobytes())
    os.utime(files / "many.npy", ns=(status.st_atime_ns, status.st_mtime_ns))
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert f"resuming: {3 * PART_ROWS} of 1,000 rows are scored already" in result.stderr
    np.testing.assert_allclose(table_of(files / "scores.csv")["regret"], regrets(files, changed), rtol=1e-5)


def test_resumed_run_rescores_images_that_changed_though_sizes_and_times_are_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("score", fitted_on_images(folder), *MODEL, "--images", "new", "--batch-size", "1", "--out")
    first, second = (folder / "new" / name for name in ("0000.png", "0001.png"))
    for path in (first, second):  # as long as each other
        path.write_bytes(path.read_bytes().ljust(300, b"\0"))
        os.utime(path, (1, 1))
    with monkeypatch.context() as patch:
        stop_after(1, patch, OSError("power failure"))
        assert "power failure" in fails(*words, "scores.csv")
    contents = first.read_bytes(), second.read_bytes()
    for path, content in zip((second, first), contents, strict=True):
        path.write_bytes(content)
        os.utime(path, (1, 1))
    succeeds(*words, "scores.csv")
    succeeds(*words, "whole.csv")
    assert table_of(folder / "scores.csv") == table_of(folder / "whole.csv")


@pytest.mark.parametrize("target", [".", "below"])
def test_folder_that_is_found_twice_by_links_is_refused(target: str, files: Files) -> None:
    write_parquet(files / "new" / "a.parquet", ROWS[:30])
    (files / "new" / "below").mkdir()
    write_parquet(files / "new" / "below" / "b.parquet", ROWS[30:50])
    words = ("score", files.fitted(), "--embeddings", files / "new", "--out", files / "scores.csv")
    (files / "new" / "loop").symlink_to(files / "new" / target)
    assert "loop is a link to" in fails(*words)
    (files / "new" / "loop").unlink()
    (files / "elsewhere").mkdir()
    write_parquet(files / "elsewhere" / "c.parquet", ROWS[50:60])
    (files / "new" / "linked").symlink_to(files / "elsewhere")
    succeeds(*words)
    np.testing.assert_allclose(table_of(files / "scores.csv")["regret"], regrets(files, ROWS[:60]), rtol=1e-5)


def test_table_is_not_replaced_unless_every_row_is_in_it(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("score", files.fitted(), "--embeddings", files / "many.npy", "--out", files / "scores.csv")
    (files / "scores.csv").write_text("of an earlier run\n")
    plain = pnml.engines.local.score_rows

    def lose(samples: Any, ranges: Any, detector: Any, store: Any, **options: Any) -> Any:
        summary = plain(samples, ranges, detector, store, **options)
        (files / "scores.csv.parts" / "rows-000000000112-000000000224.npz").unlink()
        return summary

    monkeypatch.setattr("pnml.engines.local.score_rows", lose)
    assert "run the command again" in fails(*words)
    assert (files / "scores.csv").read_text() == "of an earlier run\n"
    monkeypatch.setattr("pnml.engines.local.score_rows", plain)
    succeeds(*words)
    assert table_of(files / "scores.csv")["id"] == list(range(1000))
