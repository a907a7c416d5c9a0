"""Write folders of small images, and make a guard for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import nn

from pnml.io.embedded_images import EmbeddedImages
from pnml.io.images import open_images
from pnml.io.preparation import Preparation
from pnml.pytorch.guard import Guard

from .files import CLASSES, FEATURES

if TYPE_CHECKING:
    from pathlib import Path

SIDE = 4


def write_images(folder: Path, count: int, *, spoiled: range = range(0)) -> Path:
    """Write PNG files of noise, some of which do not decode."""
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)
    for number, picture in enumerate(pixels):
        path = folder / f"{number:04d}.png"
        Image.fromarray(picture).save(path)
        if number in spoiled:
            path.write_bytes(b"no picture")
    return folder


def guard() -> Guard:
    torch.manual_seed(0)
    layers = nn.Linear(3 * SIDE * SIDE, FEATURES), nn.Tanh(), nn.Linear(FEATURES, CLASSES)
    return Guard(nn.Sequential(nn.Flatten(), *layers).eval())


def embedded(folder: Path, guard: Guard, *, batch: int, strict: bool = False) -> EmbeddedImages:
    return EmbeddedImages(open_images(folder), batch, Preparation(), guard, strict, {"factory": "test"})
