"""The files of the demo, verified by their SHA-256 digests.

``studies/demo/run.py`` in the repository creates them; ``manifest.json`` describes them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from pnml.demo.images import SIDE, Images
from pnml.io.decode import read_image

FOLDER = Path(__file__).parent / "assets"
WEIGHTS, DETECTOR, SAMPLE, ATTRIBUTION = FILES = (
    "resnet-20_cifar10.safetensors",
    "detector.safetensors",
    "cifar10-sample.png",
    "ATTRIBUTION.md",
)
_MANIFEST = "manifest.json"


def manifest() -> dict[str, Any]:
    """Return the manifest of the files.

    It contains the ``sha256`` of each file, the names of the ``classes`` and, as ``test_rows``, the row numbers of the
    images of each class in the published test set.

    >>> manifest()["classes"][3]
    'cat'
    """
    try:
        content: dict[str, Any] = json.loads((FOLDER / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(_MANIFEST) from error
    return content


def verified_path(name: str) -> Path:
    """Return the path of one of ``FILES``; raise a ``ValueError`` if the file is missing or its digest is wrong."""
    digest = manifest()["sha256"][name]
    try:
        content = (FOLDER / name).read_bytes()
    except OSError as error:
        raise _damaged(name) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise _damaged(name)
    return FOLDER / name


def ind_images() -> Images:
    """Return the packaged CIFAR-10 test images with their labels, with equal numbers for each class."""
    content = manifest()
    rows = read_image(verified_path(SAMPLE)).reshape(len(content["classes"]), SIDE, -1, SIDE, 3)
    labels = np.repeat(np.arange(len(rows)), rows.shape[2])
    pixels = rows.swapaxes(1, 2).reshape(-1, SIDE, SIDE, 3)
    captions = [f"test image {number}" for numbers in content["test_rows"] for number in numbers]
    return Images("CIFAR-10 test images", pixels, captions, labels)


def _damaged(name: str) -> ValueError:
    return ValueError(
        f"{FOLDER / name} is missing or damaged: "
        "reinstall the package with pip install --force-reinstall --no-deps pnml"
    )
