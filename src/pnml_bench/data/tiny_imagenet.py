"""Read TinyImageNet-200 as labelled images of 64×64 pixels, from the publisher's folders.

Training images are in ``train/CLASS/images``; test images are the publisher's validation images, in ``val/images``,
whose classes are in ``val/val_annotations.txt``. The publisher's own test images have no labels. A folder that lacks
images or labels is refused: a network trained on part of the classes would be another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pnml.io.images import image_files
from pnml_bench.data.selection import decode_contents

if TYPE_CHECKING:
    from pathlib import Path

    from pnml_bench.data.selection import Contents, Selection

ANNOTATIONS = "val/val_annotations.txt"
TINYIMAGENET_FILES = {"train": ("wnids.txt", "train"), "test": ("wnids.txt", "val/images", ANNOTATIONS)}
CLASSES = 200
IMAGES_OF_A_CLASS = {"train": 500, "test": 50}


def read_tinyimagenet(folder: Path, selection: Selection) -> Contents:
    """Read ``tiny-imagenet-200``; classes are numbered in the order of their WordNet ids."""
    classes = _classes(folder)
    named = _train_images(folder, classes) if selection.split == "train" else _val_images(folder, classes)
    _check_counts(folder, named, classes, IMAGES_OF_A_CLASS[selection.split])
    number = {name: position for position, name in enumerate(classes)}
    chosen = [named[row] for row in selection.rows(len(named))]
    labels = np.asarray([number[name] for _, name in chosen], dtype=np.int64)
    return decode_contents([file for file, _ in chosen], labels, len(named), size=selection.size, strict=True)


def _classes(folder: Path) -> list[str]:
    """Return the WordNet ids of ``wnids.txt``, sorted."""
    path = folder / "wnids.txt"
    classes = sorted(set(path.read_text(encoding="ascii", errors="replace").split()))
    if len(classes) != CLASSES:
        raise ValueError(f"{path} names {len(classes)} classes: expected the {CLASSES} of TinyImageNet")
    return classes


def _train_images(folder: Path, classes: list[str]) -> list[tuple[Path, str]]:
    """Return the training images and their classes, class by class."""
    absent = [name for name in classes if not (folder / "train" / name / "images").is_dir()]
    if absent:
        raise ValueError(
            f"{folder / 'train'} lacks {len(absent)} of {len(classes)} classes: there is no {absent[0]}/images"
        )
    return [(file, name) for name in classes for file in image_files(folder / "train" / name / "images")]


def _val_images(folder: Path, classes: list[str]) -> list[tuple[Path, str]]:
    """Return the validation images and their classes, in the order of the annotations."""
    path = folder / ANNOTATIONS
    named = []
    for line, text in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        file, _, rest = text.partition("\t")
        name = rest.partition("\t")[0]
        if name not in classes or file in {"", ".", ".."} or "/" in file or "\\" in file:
            raise ValueError(
                f"{path}, line {line}: expected the name of an image, a tab and a class, got {text[:80]!r}"
            )
        named.append((folder / "val" / "images" / file, name))
    stored, annotated = set(image_files(folder / "val" / "images")), {file for file, _ in named}
    for lacking, where in ((annotated - stored, folder / "val" / "images"), (stored - annotated, path)):
        if lacking:
            raise ValueError(f"{where} lacks {len(lacking):,} images, such as {min(lacking).name}")
    if len(annotated) < len(named):
        raise ValueError(f"{path} names {len(named) - len(annotated):,} images twice")
    return named


def _check_counts(folder: Path, named: list[tuple[Path, str]], classes: list[str], expected: int) -> None:
    """Raise ``ValueError`` where a class has another number of images than the publisher gives it."""
    counts = dict.fromkeys(classes, 0)
    for _, name in named:
        counts[name] += 1
    wrong = {name: count for name, count in counts.items() if count != expected}
    if wrong:
        name, count = next(iter(wrong.items()))
        raise ValueError(
            f"{folder} is not whole: class {name} has {count:,} images, expected {expected:,} "
            f"(so have {len(wrong)} of {len(classes)} classes): unpack tiny-imagenet-200.zip again"
        )
