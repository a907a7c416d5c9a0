"""No row is lost or doubled: after failures, with inputs that change while they are read or between runs, and links."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pnml.io.embeddings
from pnml import Detector
from pnml.io.embeddings import EmbeddingFile, open_embeddings
from pnml.io.locks import lock_folder

from .cli_files import FEATURES, MODEL, Files, fails, fitted_on_images, make_files, run, stop_after, succeeds, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Rows = NDArray[np.float32]

CHUNK_ROWS = 7
PART_ROWS = 16 * CHUNK_ROWS
ROWS = np.random.default_rng(1).normal(size=(1000, FEATURES)).astype(np.float32)
CHANGED = "is not as the earlier run read it: rows that are as they were keep their scores"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(pnml.io.embeddings, "CHUNK_BYTES", 8 * FEATURES * CHUNK_ROWS)
    files = make_files(tmp_path)
    np.save(files / "many.npy", ROWS)
    return files


@pytest.fixture
def words(files: Files) -> tuple[object, ...]:
    return ("score", files.fitted(), "--embeddings", files / "many.npy", "--out", files / "scores.csv")


@pytest.fixture
def stopped(words: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """The command of a run that was stopped after four parts."""
    with monkeypatch.context() as patch:
        stop_after(4, patch, OSError("power failure"))
        assert "power failure" in fails(*words)
    return words


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


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def assert_scores_of(rows: Rows, files: Files) -> None:
    """Check that the table has the score of every row, and that no parts are left."""
    table = table_of(files / "scores.csv")
    assert table["id"] == list(range(len(rows)))
    regret = Detector.load(files / "detector.safetensors").score(rows)
    np.testing.assert_allclose(table["regret"], regret, rtol=1e-5)
    assert not (files / "scores.csv.parts").exists()


def write(path: Path, rows: Rows, group: int = 100) -> Path:
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, rows)
    else:
        lists = pa.FixedSizeListArray.from_arrays(rows.ravel(), rows.shape[1])
        pq.write_table(pa.table({"embedding": lists}), path, row_group_size=group)
    return path


def test_full_disk_leaves_whole_parts_and_the_run_is_resumed(
    files: Files, words: tuple[object, ...], scored: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_in(files.folder)
    with monkeypatch.context() as patch:
        stop_after(2, patch, OSError(errno.ENOSPC, "No space left on device"))
        assert "the disk is full" in fails(*words)
    left = ["_manifest.json", "rows-000000000000-000000000112.npz", "rows-000000000112-000000000224.npz"]
    parts = ["scores.csv.parts", *(f"scores.csv.parts/{name}" for name in left)]
    assert files_in(files.folder) == sorted([*before, *parts])
    (files / "scores.csv.parts" / ".rows-000000000224-000000000336.npz.1.partial").write_bytes(b"half")
    scored.clear()
    succeeds(*words)
    assert sum(scored) == 1000 - 2 * PART_ROWS
    assert_scores_of(ROWS, files)


def test_ctrl_c_names_what_is_kept(files: Files, words: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stop_after(2, patch, KeyboardInterrupt())
        done = run(*words)
    parts = files / "scores.csv.parts"
    assert done.exit_code == 130
    assert done.stderr.splitlines()[-1] == (
        f"interrupted: finished rows are kept in {parts}; run the same command again to continue"
    )
    succeeds(*words)
    assert_scores_of(ROWS, files)


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
    assert "resuming: 1,000 of 1,000 rows are scored already" in run(*words).stderr
    assert table_of(out)["id"] == list(range(1000))
    assert files_in(out.parent) == ["scores.parquet"]


def test_run_killed_while_it_deletes_parts_can_be_run_again(
    files: Files, words: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, removed = Path.unlink, iter(range(1000))

    def unlink(self: Path, *, missing_ok: bool = False) -> None:
        if not missing_ok and next(removed) == 4:
            raise OSError("power failure")
        plain(self, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink)
        assert "power failure" in fails(*words)
    succeeds(*words)
    assert_scores_of(ROWS, files)


def lose(part: Path) -> None:
    part.unlink()


def truncate(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:300])


@pytest.mark.parametrize("damage", [lose, truncate])
def test_rows_of_a_damaged_part_are_scored_again(
    damage: Callable[[Path], None], files: Files, stopped: tuple[object, ...], scored: list[int]
) -> None:
    damage(files / "scores.csv.parts" / "rows-000000000000-000000000112.npz")
    succeeds(*stopped)
    assert sum(scored) == 1000 - 3 * PART_ROWS
    assert_scores_of(ROWS, files)


def test_changed_detector_is_refused(files: Files, stopped: tuple[object, ...]) -> None:
    succeeds("calibrate", files / "detector.safetensors", "--embeddings", files / "held.npy")
    before = files_in(files.folder)
    assert "the detector changed. Undo the change to resume, or start over with --restart" in fails(*stopped)
    assert files_in(files.folder) == before
    succeeds(*stopped, "--restart")
    assert_scores_of(ROWS, files)


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
    path = files / f"many{suffix}"

    def save(rows: Rows) -> None:
        if suffix == ".npy":
            np.save(path, rows)
        elif suffix == ".npz":
            np.savez(path, embedding=rows, id=np.array([f"sample {number}" for number in range(len(rows))]))
        else:
            lines = [",".join(map(str, row)) for row in rows]
            path.write_text("\n".join([",".join(f"f{number}" for number in range(FEATURES)), *lines]))

    broken = ROWS.copy()
    broken[300, 5] = np.nan
    save(broken)
    words = ("score", files.fitted(), "--embeddings", path, "--out", files / "scores.csv")
    assert place.format(path=path) in fails(*words)
    save(ROWS)
    scored.clear()
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert CHANGED in result.stderr
    assert f"resuming: {2 * PART_ROWS} of 1,000 rows are scored already" in result.stderr
    assert sum(scored) == 1000 - 2 * PART_ROWS
    regret = Detector.load(files / "detector.safetensors").score(ROWS)
    np.testing.assert_allclose(table_of(files / "scores.csv")["regret"], regret, rtol=1e-5)


def change_second_part(rows: Rows) -> Rows:
    rows[PART_ROWS + 3, 2] += 1
    return rows


def remove_row_of_third_part(rows: Rows) -> Rows:
    return np.delete(rows, 2 * PART_ROWS + 50, axis=0)


def shorten(rows: Rows) -> Rows:
    return rows[: 3 * PART_ROWS + 20]


def append(rows: Rows) -> Rows:
    return np.concatenate([rows, rows[:5] + 1])


@pytest.mark.parametrize(
    ("change", "kept"), [(change_second_part, 3), (remove_row_of_third_part, 2), (shorten, 3), (append, 4)]
)
def test_only_parts_of_unchanged_rows_are_kept(
    change: Callable[[Rows], Rows], kept: int, files: Files, stopped: tuple[object, ...], scored: list[int]
) -> None:
    rows = change(ROWS.copy())
    np.save(files / "many.npy", rows)
    os.utime(files / "many.npy", (1, 1))
    result = run(*stopped)
    assert result.exit_code == 0, result.output
    assert CHANGED in result.stderr
    assert sum(scored) == len(rows) - kept * PART_ROWS
    assert_scores_of(rows, files)


def test_rows_that_changed_though_size_and_time_are_the_same_are_scored_again(
    files: Files, stopped: tuple[object, ...]
) -> None:
    status, changed = (files / "many.npy").stat(), change_second_part(ROWS.copy())
    with (files / "many.npy").open("r+b") as file:  # the file stays the same, its content does not
        file.seek(status.st_size - ROWS.nbytes)
        file.write(changed.tobytes())
    os.utime(files / "many.npy", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert f"resuming: {3 * PART_ROWS} of 1,000 rows are scored already" in run(*stopped).stderr
    assert_scores_of(changed, files)


def test_repaired_image_is_scored_and_earlier_parts_are_kept(folder: Path) -> None:
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


@pytest.mark.parametrize("more", [(), ("--restart",)])
def test_second_run_on_the_same_output_is_refused(
    more: tuple[str, ...], files: Files, words: tuple[object, ...]
) -> None:
    with lock_folder(files / "scores.csv.parts"):
        assert "another run writes to" in fails(*words, *more)
    succeeds(*words, *more)
    assert_scores_of(ROWS, files)


def replace_file(path: Path, rows: Rows, group: int = 100) -> None:
    """Put another file in the place of one, with the same time, and the same size if the shape is the same."""
    status = path.stat()
    other = write(path.with_name(f"other{path.suffix}"), rows, group)
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize(
    "command",
    [
        "score detector.safetensors --out scores.csv",
        "score detector.safetensors",
        "fit --head head.npz --out new.safetensors",
        "calibrate detector.safetensors",
    ],
)
@pytest.mark.parametrize(("name", "kept"), [("new.parquet", 960), ("new.npy", 1000)])
def test_file_that_is_replaced_while_it_is_read_is_noticed(
    name: str, kept: int, command: str, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files.folder)
    path, before = write(files / name, ROWS), files.fitted().read_bytes()
    plain = EmbeddingFile.chunks

    def changed(self: EmbeddingFile, start: int = 0) -> Iterator[Any]:
        for number, chunk in enumerate(plain(self, start)):
            if number == 2:
                replace_file(path, -ROWS[:kept])
            yield chunk

    monkeypatch.setattr(EmbeddingFile, "chunks", changed)
    assert "changed while" in fails(*command.split(), "--embeddings", name)
    assert not (files / "scores.csv").exists()
    assert not (files / "new.safetensors").exists()
    assert (files / "detector.safetensors").read_bytes() == before


def test_parquet_of_other_row_groups_is_noticed_when_it_is_opened_again(files: Files) -> None:
    path = write(files / "new.parquet", ROWS)
    samples = open_embeddings(path)
    replace_file(path, ROWS, group=96)
    with pytest.raises(ValueError, match="changed while it was read"):
        list(samples.chunks())


def test_folder_that_is_found_twice_by_links_is_refused(files: Files) -> None:
    write(files / "new" / "a.parquet", ROWS[:30])
    write(files / "elsewhere" / "b.parquet", ROWS[30:50])
    words = ("score", files.fitted(), "--embeddings", files / "new", "--out", files / "scores.csv")
    (files / "new" / "loop").symlink_to(files / "new")
    assert "loop is a link to" in fails(*words)
    (files / "new" / "loop").unlink()
    (files / "new" / "linked").symlink_to(files / "elsewhere")
    succeeds(*words)
    assert_scores_of(ROWS[:50], files)


def test_table_is_not_replaced_unless_every_row_is_in_it(
    files: Files, words: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "scores.csv").write_text("of an earlier run\n")
    plain = pnml.engines.local.score_rows

    def lose_part(*args: Any, **options: Any) -> Any:
        summary = plain(*args, **options)
        (files / "scores.csv.parts" / "rows-000000000112-000000000224.npz").unlink()
        return summary

    with monkeypatch.context() as patch:
        patch.setattr("pnml.engines.local.score_rows", lose_part)
        assert "run the command again" in fails(*words)
    assert (files / "scores.csv").read_text() == "of an earlier run\n"
    succeeds(*words)
    assert_scores_of(ROWS, files)
