from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors import safe_open
from typer.testing import CliRunner

from pnml.cli import app
from pnml_bench import data, training, zoo
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


def test_json_has_the_file_and_the_accuracy(folder: Path) -> None:
    done = run("--epochs", "1", "--limit", "8", "--out", "a.safetensors", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["weights"], found["test_images"]) == ("a.safetensors", 8)
    images = data.load("cifar10", limit=8)
    network = zoo.load(folder / "a.safetensors")
    with torch.no_grad():
        pixels = torch.from_numpy(np.array(images.images)).permute(0, 3, 1, 2)
        right = network(network.normalise(pixels)).argmax(dim=1).numpy() == images.labels
    assert found["test_accuracy"] == pytest.approx(100 * right.mean())


def test_interrupted_training_resumes(folder: Path) -> None:
    def stop(now: training.Progress) -> None:
        if now.epoch == 2:
            raise RuntimeError

    plan = replace(training.recipe("resnet-20", "cifar10"), epochs=2, batch_size=8)
    sets = [data.load("cifar10", split=split, limit=8) for split in ("train", "test")]
    with pytest.raises(RuntimeError):
        training.train(plan, *sets, out=folder / "a.safetensors", device="cpu", report=stop, save_every=0.0)
    found = run("--epochs", "2", "--limit", "8", "--out", "a.safetensors")
    assert found.exit_code == 0, found.output
    assert "resuming after epoch 1 of 2" in found.stderr


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


def test_unknown_outlier_set_exits_with_message(folder: Path) -> None:
    zoo.save(zoo.create("resnet-20", 10), folder / "net.safetensors")
    found = run("--tune", "oecc", "--from", "net.safetensors", "--outliers", "nothing")
    assert found.exit_code == 1
    assert "unknown image set 'nothing'" in found.stderr


def test_ctrl_c_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", interrupt)
    found = run()
    assert found.exit_code == 130
    assert "run the same command again" in found.stderr


def test_help_lists_every_choice() -> None:
    text = " ".join(CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "400"}).output.split())
    assert "Example: pnml train" in text.replace("`", "")
    for choice in (*MODELS, *DATASETS, *TUNINGS, training.TRANSFORMED):
        assert choice in text


def test_help_does_not_need_torch() -> None:
    program = "import sys, pnml_bench.cli.train; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
