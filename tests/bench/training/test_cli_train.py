from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors import safe_open
from typer.testing import CliRunner

from pnml.cli import app
from pnml_bench import training, zoo
from pnml_bench.training import DATASETS, MODELS, TUNINGS

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a CIFAR-10 of noise, 8 images per batch, and a folder of 3 images, and change into their folder."""
    from PIL import Image

    rng = np.random.default_rng(0)
    root = tmp_path / "data"
    (root / "cifar-10-batches-py").mkdir(parents=True)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        batch = {b"data": rng.integers(0, 256, (8, 3072), dtype=np.uint8), b"labels": list(range(8))}
        (root / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(batch))
    (root / "photos").mkdir()
    for number in range(3):
        image = Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8))
        image.save(root / "photos" / f"{number}.png")
    monkeypatch.setenv("PNML_DATA", str(root))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    common = ("--model", "resnet-20", "--dataset", "cifar10", "--device", "cpu", "--batch-size", "8")
    return CliRunner().invoke(app, ["train", *common, *arguments])


def test_train_then_tune(folder: Path) -> None:
    found = run("--epochs", "1", "--limit", "8", "--lr", "0.01")
    assert found.exit_code == 0, found.output
    assert re.search(r"^\d+\.\d\d % of 8 test images are classified correctly$", found.stdout, re.MULTILINE)
    accuracy = found.stdout.split()[0]
    path = folder / "runs" / "resnet-20_cifar10.safetensors"
    assert zoo.load(path).architecture == "resnet-20"

    tuning = ("--tune", "energy", "--from", str(path), "--outliers", "photos", "--outliers", "transformed")
    found = run("--epochs", "1", "--limit", "8", *tuning, "--outliers", "cifar10", "--out", "tuned.safetensors")
    assert found.exit_code == 0, found.output
    assert f"classified correctly, {accuracy} % before\n" in found.stdout
    with safe_open(folder / "tuned.safetensors", framework="pt") as file:
        outliers = file.metadata()["outliers"]
    assert re.fullmatch(r"photos \(3 images\), transformed, cifar10 \(40 images\)", outliers)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--tune", "energy"], 2, "must be used together"),
        (["--outliers", "transformed"], 2, "must be used together"),
        (["--from", "nowhere.safetensors"], 2, "must be used together"),
        (["--model", "vgg"], 1, "no recipe for the model 'vgg'"),
        (["--epochs", "0"], 1, "expected epochs to be at least 1, got 0"),
        (["--dataset", "svhn"], 1, "svhn (train) was not found"),
        (["--tune", "oecc", "--from", "x.safetensors", "--outliers", "transformed"], 1, "neither a file nor a known"),
    ],
)
def test_invalid_arguments_exit_with_message(arguments: list[str], code: int, message: str) -> None:
    found = run(*arguments)
    assert found.exit_code == code
    assert message in " ".join(found.stderr.replace("│", " ").split())
    assert "Traceback" not in found.output


def test_help_lists_every_choice() -> None:
    text = " ".join(CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "400"}).output.split())
    assert "Example: pnml train" in text.replace("`", "")
    for choice in (*MODELS, *DATASETS, *TUNINGS, training.TRANSFORMED):
        assert choice in text
