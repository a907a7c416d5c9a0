"""No command writes over what it reads: not by the same path, nor through links, nor into a folder of inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .cli_files import FEATURES, Files, fails, make_files, make_images, succeeds

if TYPE_CHECKING:
    from pathlib import Path

ROWS = np.random.default_rng(1).normal(size=(40, FEATURES)).astype(np.float32)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.chdir(tmp_path)
    files = make_files(tmp_path)
    files.fitted()
    lines = [",".join(map(str, row)) for row in ROWS]
    (tmp_path / "new.csv").write_text("\n".join([",".join(f"f{number}" for number in range(FEATURES)), *lines]))
    for name in ("one.parquet", "folder/a.parquet", "folder/b.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        table = pa.table({"embedding": pa.FixedSizeListArray.from_arrays(ROWS.ravel(), FEATURES)})
        pq.write_table(table, tmp_path / name)
    make_images(tmp_path / "pictures", 3)
    (tmp_path / "classes.txt").write_text("a\nb\nc\n")
    succeeds("score", "detector.safetensors", "--embeddings", "new.csv", "--out", "scores.csv")
    return files


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


SCORE = ("score", "detector.safetensors", "--embeddings")
FIT = ("fit", "--embeddings", "train.npy", "--head", "head.npz")
REPORT = ("report", "scores.csv")
OVER = [
    ((*SCORE, "new.csv"), "new.csv"),
    ((*SCORE, "new.csv"), "folder/../new.csv"),
    ((*SCORE, "one.parquet"), "one.parquet"),
    ((*SCORE, "folder"), "folder/a.parquet"),
    ((*SCORE, "folder"), "folder/scores.parquet"),
    ((*SCORE, "folder", "--engine", "ray"), "folder"),
    ((*SCORE, "folder", "--engine", "ray"), "folder/scores"),
    ((*SCORE, "folder/a.parquet", "--engine", "ray"), "folder"),
    (FIT, "train.npy"),
    (FIT, "head.npz"),
    (("fit", "--embeddings", "folder", "--head", "head.npz"), "folder/b.parquet"),
    (("fit", "--images", "pictures", "--model", "no:such"), "pictures/0001.png"),
    (REPORT, "scores.csv"),
    ((*REPORT, "--detector", "detector.safetensors"), "detector.safetensors"),
    ((*REPORT, "--classes", "classes.txt"), "classes.txt"),
    ((*REPORT, "--images", "pictures"), "pictures/0002.png"),
    (("export", "detector.safetensors", "--model", "no:such"), "detector.safetensors"),
]


@pytest.mark.parametrize(("words", "out"), OVER)
def test_output_that_is_an_input_is_refused(words: tuple[str, ...], out: str, files: Files) -> None:
    before = contents(files.folder)
    assert f"{out} would be written over" in fails(*words, "--out", out)
    if words[0] == "score":
        assert f"{out} would be written over" in fails(*words, "--out", out, "--restart")
    assert contents(files.folder) == before


@pytest.mark.parametrize(
    ("words", "target", "name"),
    [
        ((*SCORE, "new.csv"), "new.csv", "other.csv"),
        ((*SCORE, "folder"), "folder/b.parquet", "other.parquet"),
        (FIT, "head.npz", "other.safetensors"),
        (REPORT, "scores.csv", "other.html"),
    ],
)
def test_output_that_is_a_link_to_an_input_is_refused(
    words: tuple[str, ...], target: str, name: str, files: Files
) -> None:
    (files / name).symlink_to(files / target)
    before = contents(files.folder)
    assert f"{name} would be written over" in fails(*words, "--out", name)
    assert contents(files.folder) == before


def test_other_files_beside_inputs_are_written_and_written_again(files: Files) -> None:
    for _ in range(2):
        succeeds(*SCORE, "new.csv", "--out", "again.csv")
        succeeds(*SCORE, "folder", "--out", "folder/scores.csv")
        succeeds(*FIT, "--out", "another.safetensors")
        succeeds(*REPORT, "--out", "report.html")


def test_restart_does_not_delete_scores_that_are_its_input(files: Files) -> None:
    from pnml.io.store import Part, PartStore

    store = PartStore(files / "scored", "parquet")
    store.begin({"input": "rows"}, [(0, len(ROWS))])
    store.write(0, len(ROWS), Part({f"f{number}": ROWS[:, number] for number in range(FEATURES)}, []))
    before = contents(files.folder)
    said = fails(*SCORE, "scored", "--engine", "ray", "--out", "scored", "--restart")
    assert "scored would be written over scored, which is read" in said
    assert contents(files.folder) == before
