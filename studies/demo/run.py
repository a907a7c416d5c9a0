"""Make the files of the demo, src/pnml/demo/assets, from a trained network and the published CIFAR-10.

The weights are rounded to float16; everything else is computed with the rounded ones, in float32 on the CPU: the test
accuracy, the detector (fitted on all 50,000 training images, with the layers that the guard chooses), and its threshold
(set from the test images that are not in the packaged sample). The sample is drawn from the test set, as many images of
each class, by the seed below. Run it again whenever the network, the default layers or the format of detectors change,
with the packaged network itself if it is to stay; it takes a few minutes.

Example:
    pnml train --model resnet-20 --dataset cifar10 --epochs 50
    python -m studies.demo.run --checkpoint runs/resnet-20_cifar10.safetensors --data data

``data`` is the folder that holds cifar-10-batches-py.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

import pnml
from pnml.backend.progress import track
from pnml.demo.assets import ATTRIBUTION, DETECTOR, FILES, FOLDER, SAMPLE, WEIGHTS
from pnml.demo.images import SIDE
from pnml_bench import data, zoo
from pnml_bench.training.augment import accuracy, to_labelled
from pnml_bench.training.settings import read_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray
    from torch import Tensor

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
OF_CLASS = 40
SEED = 0
BATCH = 100
CREDIT = """# Where the demo's files come from

`{sample}` holds {count} images of the CIFAR-10 test set, a line of {of_class} for each class, pixel for pixel as
published (`test_batch` of the python version; `manifest.json` gives their numbers in it).

CIFAR-10 was collected by Alex Krizhevsky, Vinod Nair and Geoffrey Hinton at the University of Toronto:
Alex Krizhevsky, *Learning Multiple Layers of Features from Tiny Images*, 2009,
<https://www.cs.toronto.edu/~kriz/cifar.html>.

`{weights}` is a ResNet-20 trained for this package on the CIFAR-10 training set by `pnml train`; its metadata holds the
recipe, the date and the test accuracy. `{detector}` was fitted on the same training set with that network. Both are
under the package's own license.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, help="written by `pnml train`")
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds cifar-10-batches-py")
    options = parser.parse_args()
    train_set = data.load("cifar10", split="train", root=options.data)
    test_set = data.load("cifar10", root=options.data)
    FOLDER.mkdir(exist_ok=True)

    network = write_weights(options.checkpoint, test_set)
    rows = draw_rows(test_set)
    rest = np.setdiff1d(np.arange(len(test_set)), rows)
    guard = pnml.guard(network)
    guard.fit(batches(network, np.asarray(train_set.images), "fitting"), progress=False)
    guard.calibrate(batches(network, test_set.images[rest], "calibrating"), progress=False)
    guard.save(FOLDER / DETECTOR)

    write_sample(test_set.images[rows.ravel()])
    words = {"sample": SAMPLE, "count": rows.size, "of_class": OF_CLASS, "weights": WEIGHTS, "detector": DETECTOR}
    (FOLDER / ATTRIBUTION).write_text(CREDIT.format(**words), encoding="utf-8")
    write_manifest(rows)
    for path in sorted(FOLDER.iterdir()):
        print(f"{path.stat().st_size:>9,} bytes  {path.name}")


def write_weights(checkpoint: Path, test_set: data.ImageSet) -> zoo.Network:
    """Write the network in float16 with its accuracy on the test set, and give it as it will be read."""
    metadata, trained = read_metadata(checkpoint), zoo.load(checkpoint)
    halved = copy.deepcopy(trained).half()
    halved.normalise = trained.normalise
    network = copy.deepcopy(halved).float()
    network.normalise = trained.normalise
    measured = accuracy(network, to_labelled(test_set, len(CLASSES), torch.device("cpu")))
    about = {"test_accuracy": str(measured), "test_images": str(len(test_set)), "precision": "float16"}
    print(f"{metadata['test_accuracy']} % right as trained, {measured} % in float16")
    zoo.save(halved, FOLDER / WEIGHTS, extra=metadata | about)
    return zoo.load(FOLDER / WEIGHTS)


def draw_rows(test_set: data.ImageSet) -> NDArray[np.intp]:
    """Draw images of each class: their numbers in the test set, (classes, OF_CLASS)."""
    draw = np.random.default_rng(SEED)
    of_classes = [np.flatnonzero(test_set.labels == number) for number in range(len(CLASSES))]
    return np.stack([np.sort(draw.choice(rows, OF_CLASS, replace=False)) for rows in of_classes])


def batches(network: zoo.Network, images: NDArray[np.uint8], what: str) -> Iterable[Tensor]:
    """Yield images as the network takes them, with a progress bar."""
    for start in track(range(0, len(images), BATCH), what):
        yield network.normalise(torch.from_numpy(images[start : start + BATCH]).permute(0, 3, 1, 2))


def write_sample(images: NDArray[np.uint8]) -> None:
    """Write images, sorted by class, as one picture, a line for each class."""
    lines = images.reshape(len(CLASSES), OF_CLASS, SIDE, SIDE, 3).swapaxes(1, 2)
    Image.fromarray(lines.reshape(len(CLASSES) * SIDE, OF_CLASS * SIDE, 3)).save(FOLDER / SAMPLE, optimize=True)


def write_manifest(rows: NDArray[np.intp]) -> None:
    manifest = {
        "sha256": {name: hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() for name in FILES},
        "classes": CLASSES,
        "seed": SEED,
        "test_rows": rows.tolist(),
    }
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in manifest.items())
    (FOLDER / "manifest.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
