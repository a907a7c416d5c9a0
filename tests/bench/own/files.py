"""A small network, pictures for it, and a method, as files of a user."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

from pnml.cli import app

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typer.testing import Result

CLASSES = ("blue", "green", "red")
SIDE = 8

MINE = """
import torch
from torch import nn


def create():
    parts = [nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*parts, nn.Linear(8, 3))


class Detector:
    def fit(self, train):
        self.means = torch.stack([train.embeddings[train.labels == c].mean(dim=0) for c in train.labels.unique()])

    def score(self, samples):
        return torch.cdist(samples.embeddings, self.means).amin(dim=1)
"""

COMMAND = "--model mine.py:create --weights mine.safetensors --ind photos/train --test photos/test --device cpu"


def bench(line: str) -> Result:
    return CliRunner().invoke(app, ["bench", *line.split()])


def pnml(line: str) -> Result:
    return CliRunner().invoke(app, line.split())


def pictures(n: int, seed: int, side: int = SIDE) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return pictures with one bright channel, and which."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % len(CLASSES)
    pixels = rng.integers(0, 130, (n, side, side, 3))
    pixels[np.arange(n), :, :, labels] += rng.integers(0, 120, (n, 1, 1))
    return pixels.astype(np.uint8), labels


def network() -> nn.Sequential:
    """Return the network of ``mine.py``, trained a little, always the same."""
    namespace: dict[str, Any] = {}
    exec(MINE, namespace)  # noqa: S102
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model: nn.Sequential = namespace["create"]()
        pixels, labels = pictures(90, seed=0)
        x, y = prepared(pixels), torch.from_numpy(labels)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(20):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return model.eval()


def prepared(pixels: NDArray[np.uint8], mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
    return ((torch.from_numpy(pixels).permute(0, 3, 1, 2).double() / 255 - mean) / std).float()


def write_pictures(folder: Path, pixels: NDArray[np.uint8], labels: NDArray[np.int64] | None = None) -> None:
    for number, picture in enumerate(pixels):
        where = folder if labels is None else folder / CLASSES[labels[number]]
        where.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(where / f"{number:03d}.png")


def read_pictures(folder: str) -> NDArray[np.uint8]:
    """Return the pictures below a folder in the order of their paths."""
    return np.stack([np.asarray(Image.open(file).convert("RGB")) for file in sorted(Path(folder).rglob("*.png"))])


def make_files(folder: Path) -> None:
    """Write a network, a method, a training set, a test set and an OOD set of another kind and another size."""
    (folder / "mine.py").write_text(MINE)
    save_file(network().state_dict(), folder / "mine.safetensors")
    write_pictures(folder / "photos" / "train", *pictures(60, seed=1))
    write_pictures(folder / "photos" / "test", *pictures(30, seed=2))
    noise = np.random.default_rng(3).integers(0, 255, (20, SIDE, SIDE, 3), dtype=np.uint8)
    write_pictures(folder / "other", noise)
