"""Mistakes of somebody who tries the commands for the first time: each gives one line that names what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pnml.cli._app import _nearest_command

from .cli_files import fails

if TYPE_CHECKING:
    from .cli_files import Files


MISTAKES = {
    "fit --embeddings train.npy --head head.npz --out note.txt/d.safetensors": (
        "note.txt is a file where a folder is expected: give another path"
    ),
    "fit --embeddings train.npy --head head.npz --out d.safetensors --embedding-scale big": (
        "Invalid value for '--embedding-scale': 'big' is not one of 'auto', 'paper', 'natural'"
    ),
    "calibrate detector.safetensors --embeddings held.npy --false-alarm-rate 5%": "5%",
    "score train.npy --embeddings new.npy --out s.csv": "expected a pnml.detector that pnml wrote",
    "inspect head.npz": "head.npz is not a whole safetensors file",
    "report note.txt": "note.txt is no table of scores: expected a .parquet or .csv that 'pnml score' wrote",
    "report scores.csv --classes head.npz": "head.npz is no text file in UTF-8: expected class names, one a line",
    "report scores.csv --detector detector.safetensors --classes note.txt": (
        "1 class names in note.txt for the 3 classes of detector.safetensors: give one a line, in the order of"
    ),
    "tables --out note.txt": "note.txt",
    "bench --method baseline,": "'baseline,' lacks a name: give names with commas between",
    "bench --model resnet-21": "no model is named 'resnet-21': choose from densenet-bc-100",
    "data verify cifar11": "unknown image set 'cifar11': expected one of cifar10",
    "calibrate detector.safetensors --embeddings held.npy --false-alarm-rate 1": (
        "1.0 does not lie between 0 and 1; 1% is 0.01"
    ),
    "fit --embeddings train.npy --out d.safetensors": (
        "--embeddings and --head go together: give --head head.npz, the last layer's weight and bias, too"
    ),
    "fit --model model.pt --images shots --out d.safetensors": (
        "'model.pt' is a file of torch.save, and expected is a function that returns the model, as mine.py:create. If "
        "the file holds a whole model, let your function return torch.load('model.pt', weights_only=False)"
    ),
    "score detector.safetensors --images one.png --model torch.nn:Identity": (
        "one.png is one image: expected a folder of images, or a .parquet file"
    ),
    "monitor week --detector detector.safetensors": "week is a folder: name its tables themselves, as week/monday.csv",
    "score detector.safetensors --embeddings empty": "no .parquet files in empty: give a folder that holds some, or a",
    "leaderboard --out empty": "empty is a folder, and a file is written: --results empty names a folder of results",
    "report scores.csv --classes note.txt": "1 class names in note.txt, and scores.csv has class 1: give one a line",
}

MEANT = {
    "fitt": "fit",
    "leaderbord": "leaderboard",
    "fit --image photos": "--images",
    "bench --methods pnml": "--method",
    "calibrate detector.safetensors --false-alarm 0.1": "--false-alarm-rate",
    "bench --method pnlm": "'pnml'",
    "bench --method ODIN": "'odin'",
    "bench --model resnet34": "'resnet-34'",
    "data fetch cifr10": "'cifar10'",
    "train --model resnet-34 --dataset cifar-10": "'cifar10'",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_are_one_line_with_the_value(line: str, files: Files) -> None:
    files.fitted(calibrated=True)
    (files / "note.txt").write_text("hello")
    (files / "empty").mkdir()
    (files / "scores.csv").write_text("id,prediction,probability,regret\n0,1,0.9,0.1\n")
    (files / "week").mkdir()
    (files / "week" / "monday.csv").write_text("id,regret\n0,0.9\n")
    (files / "one.png").write_bytes(b"")
    (files / "shots").mkdir()
    (files / "shots" / "one.png").write_bytes(b"")
    assert MISTAKES[line] in fails(*line.split())


@pytest.mark.parametrize("line", MEANT)
def test_a_mistyped_word_is_answered_with_the_right_one(line: str, files: Files) -> None:
    files.fitted()
    said = fails(*line.split())
    assert MEANT[line] in re.split(r"[Dd]id you mean|Possible options:", said, maxsplit=1)[1]


def test_the_right_command_is_named_where_the_library_does_not() -> None:
    error = Exception("No such command 'fitt'.")
    error.ctx = SimpleNamespace(command=SimpleNamespace(commands={"fit": None, "score": None}))  # type: ignore[attr-defined]
    assert _nearest_command(error) == "; did you mean 'fit'?"
    assert _nearest_command(Exception("No such command 'fitt'.")) == ""


def test_unknown_device_of_train_is_named(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    from pnml_bench.data import load

    monkeypatch.setattr("pnml_bench.cli.train.load", lambda *_, **__: load("uniform", limit=8))
    said = fails("train", "--model", "resnet-20", "--dataset", "cifar10", "--device", "abacus")
    assert "PyTorch knows no device 'abacus': give auto, cpu, cuda or cuda:0" in said


@pytest.mark.slow
def test_a_table_on_standard_output_keeps_its_ids_whatever_the_terminal_shows(files: Files) -> None:
    files.fitted()
    np.savez(files / "new.npz", embedding=files.new[:2], id=np.array(["é", "ö"]))
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [sys.executable, "-m", "pnml", "score", "detector.safetensors", "--embeddings", "new.npz", "--out", "-"]
    done = subprocess.run(words, env=environment, capture_output=True, check=True)
    assert [line.split(",")[0] for line in done.stdout.decode("utf-8").splitlines()] == ["id", "é", "ö"]


def test_many_columns_are_named_with_the_last_ones(files: Files) -> None:
    names = [*(f"f{number}" for number in range(40)), "label"]
    (files / "wide.csv").write_text(",".join(names) + "\n" + ",".join("0.5" for _ in names) + "\n")
    expected = "f0, f1, f2, f3, f4, f5, ..., f37, f38, f39, label (41 in all)"
    assert expected in fails("fit", "--embeddings", "wide.csv", "--head", "head.npz", "--out", "d.safetensors")
    assert expected in fails("report", "wide.csv")
