"""Errors in the input are printed as one line, and no file is lost or half written."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import pnml.io.embeddings
from pnml import Detector
from pnml.core.detector_state import VERSION

from .cli_files import FEATURES, Files, fails, make_files, succeeds

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


USAGE: list[tuple[list[str], str]] = [
    (["fit", "--embeddings", "train.npy", "--out", "d.safetensors"], "--embeddings and --head go together"),
    (["fit", "--embeddings", "train.npy", "--head", "head.npz", "--head-layer", "fc", "--out", "d"], "--images only"),
    (["fit", "--images", ".", "--out", "d.safetensors"], "give either --embeddings, or --images and the --model"),
    (["score", "detector.safetensors", "--out", "s.csv"], "give either --embeddings, or --images and the --model"),
    (["calibrate", "detector.safetensors", "--embeddings", "held.npy", "--images", "."], "give either --embeddings"),
    (["calibrate", "detector.safetensors", "--embeddings", "held.npy", "--size", "3"], "go with --images only"),
    (["calibrate", "detector.safetensors", "--embeddings", "held.npy", "--false-alarm-rate", "5"], "between 0 and 1"),
    (["calibrate", "detector.safetensors", "--embeddings", "absent.npy"], "'absent.npy' does not exist"),
    (["score", "detector.safetensors", "--embeddings", "new.npy", "--out", "s.xls"], "must end in .parquet or .csv"),
    (["fit", "--model", "a:b", "--images", "head.npz", "--out", "d"], "neither a folder of images nor a .parquet file"),
    (["fit", "--model", "a:b", "--images", "empty", "--out", "d"], "no images in empty: expected files ending in .bmp"),
    (["fit", "--model", "a:b", "--images", ".", "--mean", "1,2", "--out", "d"], "'1,2' is not one number or three"),
    (["export", "detector.safetensors", "--model", "a:b", "--out", "g", "--example-shape", "3,x"], "'3,x' is not"),
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
