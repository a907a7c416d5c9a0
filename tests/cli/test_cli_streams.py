"""CSV files, standard input and output, and chosen columns: the scores of the same embeddings in an .npy."""

from __future__ import annotations

import csv
import gc
import io
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import pnml.io.embeddings
from pnml import Detector
from pnml.cli import app

from .cli_files import FEATURES, Files, fails, make_files, run, succeeds, table_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

PIPE = "import sys; from pnml.cli import app; app(sys.argv[1:])"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(pnml.io.embeddings, "CHUNK_BYTES", 8 * FEATURES * 7)
    return make_files(tmp_path)


def as_csv(rows: NDArray[np.float32], ids: list[str] | None = None) -> str:
    header = [*([] if ids is None else ["id"]), *(f"f{number}" for number in range(rows.shape[1]))]
    names = [[]] * len(rows) if ids is None else [[name] for name in ids]
    lines = [[*name, *map(str, row)] for name, row in zip(names, rows, strict=True)]
    return "".join(",".join(line) + "\n" for line in [header, *lines])


def piped(content: bytes, *words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], input=content)


def content_of(kind: str, rows: NDArray[np.float32]) -> bytes:
    stream = io.BytesIO()
    if kind == "csv":
        return as_csv(rows, [f"sample {number}" for number in range(len(rows))]).encode()
    if kind == "npy":
        np.save(stream, rows)
    else:
        np.savez(stream, embedding=rows)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["csv", "npy", "npz"])
def test_commands_read_standard_input_and_score_writes_standard_output(kind: str, files: Files) -> None:
    path, expected = files / "piped.safetensors", files.fitted(calibrated=True)
    fit = piped(content_of(kind, files.train), "fit", "--embeddings", "-", "--head", files / "head.npz", "--out", path)
    assert fit.exit_code == 0, fit.output
    assert "fitted on 300 rows of standard input" in fit.stdout
    assert piped(content_of(kind, files.held), "calibrate", path, "--embeddings", "-").exit_code == 0
    scored = piped(content_of(kind, files.new), "score", path, "--embeddings", "-")
    assert scored.exit_code == 0, scored.output
    assert "scored 100 rows of standard input onto standard output" in scored.stderr
    table = list(csv.DictReader(io.StringIO(scored.stdout)))
    assert len(table) == 100
    assert table[7]["id"] == ("sample 7" if kind == "csv" else "7")
    assert [*table[0]] == ["id", "prediction", "probability", "regret", "p_value", "is_ood"]
    regret = Detector.load(expected).score(files.new)
    np.testing.assert_allclose([float(row["regret"]) for row in table], regret, rtol=1e-5)
    succeeds("score", path, "--embeddings", files / "new.npy", "--out", files / "s.csv")
    assert [float(row["regret"]) for row in table] == table_of(files / "s.csv")["regret"]


def test_reader_that_stops_early_is_no_error(files: Files) -> None:
    many = np.random.default_rng(1).normal(size=(30_000, FEATURES)).astype(np.float32)
    np.save(files / "many.npy", many)  # more than a pipe holds
    words = [sys.executable, "-c", PIPE, "score", str(files.fitted()), "--embeddings", str(files / "many.npy")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"id,prediction,probability,regret\n"
        process.stdout.close()
        said = process.stderr.read().decode()
    assert process.returncode == 1
    assert "rror" not in said
    assert "Traceback" not in said


def test_copy_of_standard_input_is_deleted_and_not_named(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    detector = files.fitted()
    assert piped(content_of("csv", files.new), "score", detector, "--embeddings", "-").exit_code == 0
    said = piped(b"f0,f1\n1,2\n3,x\n", "score", detector, "--embeddings", "-", "--column", "f1").stderr
    assert "standard input has embeddings of 1 features" in said
    said = piped(as_csv(files.new).replace("\n", ",x\n", 1).encode(), "score", detector, "--embeddings", "-").stderr
    assert "line 2 of standard input has 8 cells, the header 9" in said
    gc.collect()
    assert os.listdir(tmp_path / "scratch") == []  # noqa: PTH208


@pytest.mark.parametrize(("content", "what"), [(b"PAR1....", "parquet"), (b"\x1f\x8b....", "gzip")])
def test_other_formats_on_standard_input_are_refused(content: bytes, what: str, files: Files) -> None:
    said = piped(content, "score", files.fitted(), "--embeddings", "-").stderr
    assert f"standard input is {what}: expected .npy, .npz or CSV; write it to a file and give its path" in said


def test_closed_standard_input_is_said(
    files: Files, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["score", str(files.fitted()), "--embeddings", "-"]
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "argv", ["pnml", *words])
    with pytest.raises(SystemExit, match="1"):
        app()
    assert "error: standard input is closed: pipe the embeddings in, or give the path" in capsys.readouterr().err


def test_json_and_the_table_do_not_share_standard_output(files: Files) -> None:
    said = fails("score", files.fitted(), "--embeddings", files / "new.npy", "--json")
    assert "--json needs standard output for itself: name a file" in said


def test_engine_ray_refuses_standard_input_and_output(files: Files) -> None:
    detector = files.fitted()
    assert "--engine ray writes a folder: name one" in fails(
        "score", detector, "--embeddings", files / "new.npy", "--engine", "ray"
    )
    words = ("score", detector, "--embeddings", "-", "--engine", "ray", "--out", files / "scores")
    assert "standard input is no parquet" in piped(content_of("npy", files.new), *words).stderr


def write_layers(path: Path, rows: NDArray[np.float32]) -> None:
    """Write the embeddings under another name, and other numbers of the same width under the usual one."""
    arrays: dict[str, Any] = {"embedding": np.roll(rows, 1, axis=1), "penultimate": rows}
    np.savez(path, **arrays)


def test_column_of_fit_is_kept_for_the_other_commands(files: Files) -> None:
    for name in ("train", "held", "new"):
        write_layers(files / f"{name}.npz", getattr(files, name))
    path = files / "d.safetensors"
    words = ("fit", "--embeddings", files / "train.npz", "--head", files / "head.npz", "--out", path)
    succeeds(*words, "--column", "penultimate")
    assert "columns    penultimate\n" in succeeds("inspect", path)
    succeeds("calibrate", path, "--embeddings", files / "held.npz")
    succeeds("score", path, "--embeddings", files / "new.npz", "--out", files / "s.csv")
    expected = Detector.load(files.fitted(calibrated=True))
    np.testing.assert_allclose(table_of(files / "s.csv")["regret"], expected.score(files.new), rtol=1e-5)
    succeeds("score", path, "--embeddings", files / "new.npy", "--out", files / "npy.csv")  # which has no names
    assert table_of(files / "npy.csv") == table_of(files / "s.csv")
    succeeds("score", path, "--embeddings", files / "new.npz", "--column", "embedding", "--out", files / "other.csv")
    rolled = expected.score(np.roll(files.new, 1, axis=1))
    np.testing.assert_allclose(table_of(files / "other.csv")["regret"], rolled, rtol=1e-5)
    np.savez(files / "else.npz", embedding=files.new)
    said = fails("score", path, "--embeddings", files / "else.npz", "--out", files / "x.csv")
    assert "has no column 'penultimate' of numbers: choose --column from embedding" in said


def test_column_is_for_embeddings_only(files: Files) -> None:
    words = (
        "score",
        files.fitted(),
        "--images",
        files.folder,
        "--model",
        "a:b",
        "--column",
        "x",
        "--out",
        files / "s.csv",
    )
    assert "--column goes with --embeddings only" in fails(*words)
    said = run("score", files.fitted(), "--embeddings", files / "new.npy", "--column", "x").stderr
    assert "holds one array without a name, got --column x: leave it out" in said
