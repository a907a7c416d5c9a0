"""Small input files, and functions that run commands on them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner, Result

from pnml.cli import app

if TYPE_CHECKING:
    import pytest
    from numpy.typing import NDArray

FEATURES, CLASSES, SIDE = 8, 3, 4


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def succeeds(*words: object) -> str:
    """Run a command that must succeed; return its stdout."""
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def fails(*words: object) -> str:
    """Run a command that must fail without a traceback; return its stderr as one line."""
    result = run(*words)
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in {1, 2}
    assert "Traceback" not in result.stderr
    assert "unexpected" not in result.stderr
    return " ".join(result.stderr.split())


def number_after(word: str, text: str) -> float:
    found = re.search(rf"{word} ([-+.e0-9]+)", text)
    assert found, text
    return float(found[1])


@dataclass(frozen=True)
class Files:
    """Embeddings of a training, a held-out and a new set, and the head they enter."""

    folder: Path
    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    train: NDArray[np.float32]
    held: NDArray[np.float32]
    new: NDArray[np.float32]

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def fitted(self, name: str = "detector.safetensors", *, calibrated: bool = False) -> Path:
        succeeds("fit", "--embeddings", self / "train.npy", "--head", self / "head.npz", "--out", self / name)
        if calibrated:
            succeeds("calibrate", self / name, "--embeddings", self / "held.npy")
        return self / name


def make_files(folder: Path) -> Files:
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(5, FEATURES))  # training rows do not span all features
    weight, bias = rng.normal(size=(CLASSES, FEATURES)), rng.normal(size=CLASSES)
    train, held = ((rng.normal(size=(n, 5)) @ mixing).astype(np.float32) for n in (300, 99))
    known = (rng.normal(size=(60, 5)) @ mixing).astype(np.float32)
    new = np.concatenate([known, rng.normal(size=(40, FEATURES)).astype(np.float32)])
    np.savez(folder / "head.npz", weight=weight, bias=bias)
    for name, rows in {"train": train, "held": held, "new": new}.items():
        np.save(folder / f"{name}.npy", rows)
    return Files(folder, weight, bias, train, held, new)


MODULE = f"""
from torch import nn

def create():
    layers = [nn.Linear({3 * SIDE * SIDE}, {FEATURES}), nn.Tanh(), nn.Linear({FEATURES}, {CLASSES})]
    return nn.Sequential(nn.Flatten(), *layers)
"""


def make_images(folder: Path, count: int, seed: int = 0) -> NDArray[np.uint8]:
    """Write PNG files of noise; return their pixels in the order of their names."""
    folder.mkdir()
    pixels = np.random.default_rng(seed).integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)
    for number, picture in enumerate(pixels):
        Image.fromarray(picture).save(folder / f"{number:04d}.png")
    return pixels


def stop_after(parts: int, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let some parts of a table of scores be written, and fail in the middle of the next."""
    plain, written = Path.write_bytes, iter(range(parts + 1))

    def write_bytes(path: Path, content: bytes) -> None:
        if path.name.startswith(".rows-") and next(written) == parts:
            plain(path, content[:7])
            raise error
        plain(path, content)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)


def table_of(path: Path) -> dict[str, list[Any]]:
    import pyarrow.csv
    import pyarrow.parquet

    read = pyarrow.csv.read_csv if path.suffix == ".csv" else pyarrow.parquet.read_table
    columns: dict[str, list[Any]] = read(path).to_pydict()
    return columns


MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
PREPARED = ("--mean", "0.4,0.5,0.6", "--std", "0.2,0.3,0.4")


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Linear(3 * SIDE * SIDE, FEATURES), nn.Tanh(), nn.Linear(FEATURES, CLASSES)
    return nn.Sequential(nn.Flatten(), *layers)


def prepared(pixels: NDArray[np.uint8]) -> torch.Tensor:
    """Normalise by hand."""
    scaled = (pixels.astype(np.float64) / 255 - MEAN) / STD
    return torch.from_numpy(scaled.transpose(0, 3, 1, 2)).float()


MODEL = ("--model", "made_here:create", "--weights", "model.safetensors")


def fitted_on_images(folder: Path) -> Path:
    succeeds("fit", *MODEL, "--images", "train", *PREPARED, "--out", "detector.safetensors", "--batch-size", "32")
    return folder / "detector.safetensors"


def pixels_of(folder: Path) -> NDArray[np.uint8]:
    return np.stack([np.asarray(Image.open(file)) for file in sorted(folder.iterdir())])
