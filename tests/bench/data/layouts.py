"""Write small random image sets in the layouts of their publishers."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from scipy.io import savemat

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

IMAGENET30_CLASSES = ("acorn", "airliner", "ambulance")
ODIN_FOLDERS = {  # archive: folder of its images, their side in pixels, their suffix
    "Imagenet": ("Imagenet/test", 36, "png"),
    "Imagenet_resize": ("Imagenet_resize/Imagenet_resize", 32, "png"),
    "LSUN": ("LSUN/test", 36, "png"),
    "LSUN_resize": ("LSUN_resize/LSUN_resize", 32, "png"),
    "iSUN": ("iSUN/iSUN_patches", 32, "jpeg"),
}


def random_images(n: int, side: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return random images (n, side, side, 3) of flat 4×4 patches, which JPEG preserves better than noise."""
    patches = np.random.default_rng(seed).integers(0, 256, (n, side // 4, side // 4, 3), dtype=np.uint8)
    return patches.repeat(4, axis=1).repeat(4, axis=2)


def write_images(folder: Path, images: NDArray[np.uint8], suffix: str = "png") -> list[Path]:
    """Write images as 00000.png and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:05d}.{suffix}" for number in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    return paths


def make_cifar10(root: Path, n: int) -> None:
    """Write ``cifar-10-batches-py``: n test images and n in each of the five training batches."""
    for seed, file in enumerate(["test_batch", *(f"data_batch_{i}" for i in range(1, 6))]):
        _write_batch(root / "cifar-10-batches-py" / file, n, seed, b"labels", classes=10, protocol=2)


def make_cifar100(root: Path, n: int) -> None:
    """Write ``cifar-100-python``: n test and n training images."""
    for seed, file in enumerate(["test", "train"]):
        _write_batch(root / "cifar-100-python" / file, n, seed + 10, b"fine_labels", classes=100, protocol=4)


def make_svhn(root: Path, n: int) -> None:
    """Write ``svhn/*.mat``: n test and n training images, the digit 0 labelled 10."""
    (root / "svhn").mkdir(parents=True, exist_ok=True)
    for seed, split in enumerate(["test", "train"]):
        labels = (np.arange(n) % 10 + 1).astype(np.uint8)[:, None]
        content = {"X": random_images(n, 32, seed + 20).transpose(1, 2, 3, 0), "y": labels}
        savemat(root / "svhn" / f"{split}_32x32.mat", content)


def make_tiny_imagenet(root: Path, n: int) -> None:
    """Write ``tiny-imagenet-200/test/images``: n images of 64×64 pixels."""
    write_images(root / "tiny-imagenet-200" / "test" / "images", random_images(n, 64, 30), "JPEG")


def make_odin(root: Path, n: int) -> None:
    """Write the five unpacked archives of ODIN: n images each."""
    for seed, (folder, side, suffix) in enumerate(ODIN_FOLDERS.values()):
        write_images(root / folder, random_images(n, side, seed + 40), suffix)


def make_imagenet30(root: Path, n: int) -> None:
    """Write ``imagenet30``: n images, of different sizes, in each class of each split."""
    for seed, split in enumerate(["one_class_test", "one_class_train"]):
        for number, name in enumerate(IMAGENET30_CLASSES):
            folder = root / "imagenet30" / split / name / "images"
            write_images(folder, random_images(n, 40 + 4 * number, seed + 50 + number), "JPEG")


def make_all(root: Path, n: int = 20) -> None:
    """Write every set, n images each."""
    for make in (make_cifar10, make_cifar100, make_svhn, make_tiny_imagenet, make_odin, make_imagenet30):
        make(root, n)


def _write_batch(path: Path, n: int, seed: int, label_key: bytes, *, classes: int, protocol: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.arange(n) % classes)
    batch: dict[bytes, Any] = {
        b"data": random_images(n, 32, seed).transpose(0, 3, 1, 2).reshape(n, 3072).copy(),
        label_key: labels.tolist(),
        b"filenames": [f"{number}.png".encode() for number in range(n)],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(batch, protocol=protocol))
