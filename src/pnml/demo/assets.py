"""The files of the demo, compared with their digests before use.

``benchmarks/demo_assets.py`` in the repository makes them from a training; ``manifest.json`` says what they are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pnml.demo.pictures import SIDE, Pictures
from pnml.io.decode import read_image
from pnml.io.download import verify

FOLDER = Path(__file__).parent / "assets"
WEIGHTS, DETECTOR, SAMPLE, ATTRIBUTION = FILES = (
    "resnet-20_cifar10.safetensors",
    "detector.safetensors",
    "cifar10-sample.png",
    "ATTRIBUTION.md",
)
_MANIFEST = "manifest.json"


def manifest() -> dict[str, Any]:
    """Say what the files are.

    ``sha256`` of each of them, the ``classes`` by name, and ``test_rows``, for each class the numbers of the sample's
    images in the published test set.

    >>> manifest()["classes"][3]
    'cat'
    """
    try:
        found: dict[str, Any] = json.loads((FOLDER / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(_MANIFEST) from error
    return found


def checked(name: str) -> Path:
    """Give the path of one of ``FILES`` after a look at its digest.

    Raises:
        ValueError: the file is not there, or not what it was when the package was made.
    """
    expected = manifest()["sha256"][name]
    try:
        verify(FOLDER / name, sha256=expected)
    except (OSError, ValueError) as error:
        raise _damaged(name) from error
    return FOLDER / name


def known_pictures() -> Pictures:
    """Give the CIFAR-10 test images of the package, lossless and with their labels, as many of each class."""
    about = manifest()
    lines = read_image(checked(SAMPLE)).reshape(len(about["classes"]), SIDE, -1, SIDE, 3)
    labels = np.repeat(np.arange(len(lines)), lines.shape[2])
    images = lines.swapaxes(1, 2).reshape(-1, SIDE, SIDE, 3)
    captions = [f"test image {row}" for rows in about["test_rows"] for row in rows]
    return Pictures("CIFAR-10 test images", images, captions, labels)


def _damaged(name: str) -> ValueError:
    return ValueError(
        f"the demo's file {FOLDER / name} is damaged or absent: "
        "install the package again, pip install --force-reinstall --no-deps pnml"
    )
