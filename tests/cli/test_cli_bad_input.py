"""Errors in the input are printed as one line, and no file is lost or half written."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import pnml.io.embeddings
from pnml import Detector
from pnml.core.detector_state import VERSION

from .cli_files import CLASSES, FEATURES, Files, fails, make_files, run, succeeds, table_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(pnml.io.embeddings, "CHUNK_BYTES", 8 * FEATURES * 7)
    return make_files(tmp_path)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def replace_by_text(path: Path) -> None:
    path.write_text("no safetensors")


def replace_by_weights(path: Path) -> None:
    save_file({"weight": np.zeros((2, 2))}, path)


def make_newer(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(f'"version":"{VERSION}"'.encode(), b'"version":"9"'))


DETECTORS: list[tuple[Callable[[Path], None], str]] = [
    (truncate, "is not a whole safetensors file"),
    (replace_by_text, "is not a whole safetensors file"),
    (replace_by_weights, "holds no pnml.detector but a file that pnml did not write"),
    (make_newer, "has pnml.detector format 9"),
]


@pytest.mark.parametrize(("spoil", "message"), DETECTORS)
def test_unreadable_detectors_are_refused(spoil: Callable[[Path], None], message: str, files: Files) -> None:
    path = files.fitted()
    spoil(path)
    before = path.read_bytes()
    rows = ("--embeddings", files / "new.npy")
    for words in (["inspect", path], ["calibrate", path, *rows], ["score", path, *rows, "--out", files / "s.csv"]):
        assert message in fails(*words)
    assert path.read_bytes() == before
    assert not list(files.folder.glob("s.csv*"))


@pytest.mark.parametrize("command", ["fit", "calibrate", "score"])
def test_embeddings_of_another_width_are_refused(command: str, files: Files) -> None:
    np.save(files / "narrow.npy", np.ones((50, FEATURES - 1)))
    words: dict[str, list[Any]] = {
        "fit": ["fit", "--head", files / "head.npz", "--out", files / "other.safetensors"],
        "calibrate": ["calibrate", files.fitted()],
        "score": ["score", files.fitted(), "--out", files / "s.csv"],
    }
    said = fails(*words[command], "--embeddings", files / "narrow.npy")
    assert f"has embeddings of {FEATURES - 1} features, the head takes {FEATURES}" in said
    assert not (files / "other.safetensors").exists()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_not_finite_row_is_named_by_its_position_and_id(value: float, suffix: str, files: Files) -> None:
    rows = files.new.copy()
    rows[23, 5] = value
    names = np.array([f"sample-{number}" for number in range(len(rows))])
    path, called = files / f"bad{suffix}", "" if suffix == ".npy" else " (id sample-23)"
    if suffix == ".npy":
        np.save(path, rows)
    else:
        np.savez(path, embedding=rows, id=names)
    detector = files.fitted()
    expected = f"row 23 of {path}, counted from 0{called}, holds {value} in column 5"
    for words in (
        ["fit", "--head", files / "head.npz", "--out", files / "other.safetensors"],
        ["calibrate", detector],
        ["score", detector, "--out", files / "s.csv"],
    ):
        assert expected in fails(*words, "--embeddings", path)
    np.save(files / "bad.npy", files.new)
    if suffix == ".npy":
        succeeds("score", detector, "--embeddings", path, "--out", files / "s.csv", "--restart")
        assert len(table_of(files / "s.csv")["id"]) == len(rows)


@pytest.mark.filterwarnings("default::pnml.core.detector.ZeroEmbeddingWarning")
def test_zero_embeddings_are_left_out_of_fit_with_a_warning_and_flagged_by_score(files: Files) -> None:
    rows = files.train.copy()
    rows[100] = 0
    np.save(files / "train.npy", rows)
    path = files / "d.safetensors"
    words = ["fit", "--embeddings", files / "train.npy", "--head", files / "head.npz", "--out", path]
    result = run(*words)
    assert result.exit_code == 0
    assert result.stderr.count("warning: 1 of 300 training rows have norm 0") == 1
    assert "fitted on 299 rows" in result.stdout
    assert Detector.load(path).left_out == 1
    succeeds("calibrate", path, "--embeddings", files / "held.npy")
    succeeds("score", path, "--embeddings", files / "train.npy", "--out", files / "s.csv")
    table = table_of(files / "s.csv")
    assert table["regret"][100] == pytest.approx(np.log(CLASSES))
    assert table["is_ood"][100]
    assert "fitted on 300 rows" in succeeds(*words, "--embedding-scale", "natural")


@pytest.mark.filterwarnings("default::pnml.core.detector.FewRowsWarning")
def test_few_training_rows_print_one_warning_with_the_leverage_of_the_paper(files: Files) -> None:
    np.save(files / "few.npy", files.train[:4])
    words = ["fit", "--embeddings", files / "few.npy", "--head", files / "head.npz", "--out", files / "d.safetensors"]
    assert "warning" not in run(*words).stderr
    result = run(*words, "--embedding-scale", "paper")
    assert result.exit_code == 0
    assert result.stderr.count(f"\nwarning: 4 training rows for {FEATURES} features span so little") == 1


def test_too_few_calibration_samples_are_refused(files: Files) -> None:
    path = files.fitted()
    before = path.read_bytes()
    said = fails("calibrate", path, "--embeddings", files / "held.npy", "--false-alarm-rate", "0.001")
    assert "99 calibration samples cannot support a false-alarm rate of 0.001: use at least 999 samples" in said
    assert path.read_bytes() == before


def test_head_of_a_wrong_shape_is_refused(files: Files) -> None:
    np.savez(files / "head.npz", weight=files.weight, bias=np.zeros(CLASSES + 1))
    words = ["fit", "--embeddings", files / "train.npy", "--head", files / "head.npz", "--out", files / "d.safetensors"]
    assert "bias must have one entry per class" in fails(*words)


@pytest.mark.parametrize("shape", [(CLASSES, 0), (0, FEATURES), (CLASSES,), (CLASSES, FEATURES, 1)])
def test_a_head_without_classes_or_features_is_refused_by_name(shape: tuple[int, ...], files: Files) -> None:
    np.savez(files / "head.npz", weight=np.zeros(shape))
    words = ["fit", "--embeddings", files / "train.npy", "--head", files / "head.npz", "--out", files / "d.safetensors"]
    assert f"'weight' of {files / 'head.npz'} holds float64 of shape {shape}: expected finite numbers" in fails(*words)


USAGE: list[tuple[list[str], str]] = [
    (["fit", "--embeddings", "train.npy", "--out", "d.safetensors"], "--embeddings and --head go together"),
    (["fit", "--head", "head.npz", "--out", "d.safetensors"], "--embeddings and --head go together"),
    (["fit", "--embeddings", "train.npy", "--head", "head.npz", "--head-layer", "fc", "--out", "d"], "--images only"),
    (["fit", "--out", "d.safetensors"], "give either --embeddings, or --images and the --model"),
    (["fit", "--images", ".", "--out", "d.safetensors"], "give either --embeddings, or --images and the --model"),
    (["score", "detector.safetensors", "--out", "s.csv"], "give either --embeddings, or --images and the --model"),
    (["calibrate", "detector.safetensors", "--embeddings", "held.npy", "--images", "."], "give either --embeddings"),
    (["calibrate", "detector.safetensors", "--embeddings", "held.npy", "--size", "3"], "go with --images only"),
    (["calibrate", "detector.safetensors", "--embeddings", "held.npy", "--false-alarm-rate", "5"], "between 0 and 1"),
    (["calibrate", "detector.safetensors", "--embeddings", "absent.npy"], "'absent.npy' does not exist"),
    (["inspect", "absent.safetensors"], "'absent.safetensors' does not exist"),
    (["score", "detector.safetensors", "--embeddings", "new.npy", "--out", "s.xls"], "must end in .parquet or .csv"),
    (["fit", "--model", "a:b", "--images", "head.npz", "--out", "d"], "neither a folder of images nor a .parquet file"),
    (["fit", "--model", "a:b", "--images", "empty", "--out", "d"], "no images in empty: expected files ending in .bmp"),
    (["fit", "--model", "a:b", "--images", ".", "--mean", "x", "--out", "d"], "'x' is not one number or three numbers"),
    (["fit", "--model", "a:b", "--images", ".", "--mean", "1,2", "--out", "d"], "'1,2' is not one number or three"),
    (["fit", "--model", "a:b", "--images", ".", "--std", "1,0,1", "--out", "d"], "three positive numbers"),
    (["export", "detector.safetensors", "--model", "a:b", "--out", "g", "--example-shape", "3,x"], "'3,x' is not"),
    (["export", "detector.safetensors", "--model", "a:b", "--out", "g", "--example-shape", "3,0"], "'3,0' is not"),
    (["export", "detector.safetensors", "--model", "a", "--out", "g", "--example-shape", "3"], "names no function"),
]


@pytest.mark.parametrize(("words", "message"), USAGE)
def test_invalid_options_are_refused_and_write_nothing(
    words: list[str], message: str, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.fitted()
    (files / "empty").mkdir()
    monkeypatch.chdir(files.folder)
    before = sorted(files.folder.rglob("*"))
    assert message in fails(*words)
    assert sorted(files.folder.rglob("*")) == before


def test_missing_extra_is_named_with_the_install_command(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files.fitted()
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    said = fails("score", path, "--embeddings", files / "new.npy", "--out", files / "s.parquet")
    assert "pip install 'pnml[parquet]'" in said
    succeeds("score", path, "--embeddings", files / "new.npy", "--out", files / "s.csv")


def test_full_disk_leaves_the_detector_unchanged(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files.fitted()
    before = {file: file.read_bytes() for file in files.folder.iterdir()}

    def write_half(target: Path, _content: bytes) -> None:
        target.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(path), "write_bytes", write_half)
    fit = ["fit", "--embeddings", files / "held.npy", "--head", files / "head.npz", "--out"]
    for words in (["calibrate", path, "--embeddings", files / "held.npy"], [*fit, path], [*fit, files / "new.st"]):
        out = words[1] if words[0] == "calibrate" else words[-1]
        assert f"cannot write {out}, the disk is full: nothing half-written was left" in fails(*words)
    assert {file: file.read_bytes() for file in files.folder.iterdir()} == before


def test_other_system_errors_are_printed(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "detector.safetensors")

    monkeypatch.setattr(Detector, "save", refuse)
    words = ["fit", "--embeddings", files / "train.npy", "--head", files / "head.npz", "--out", files / "d.safetensors"]
    assert "error: [Errno 13] Permission denied: 'detector.safetensors'" in fails(*words)


def test_calibrate_keeps_what_was_fitted(files: Files) -> None:
    path = files.fitted()
    before = load_file(path)
    succeeds("calibrate", path, "--embeddings", files / "held.npy")
    after = load_file(path)
    assert all((before[name] == after[name]).all() for name in before)
