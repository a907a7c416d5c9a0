"""Is the regret behind on photographs because it is fitted on four pictures of each class? Fit on fewer, and on more.

    python -m studies.families.rows_a_class --data FOLDER

FOLDER is that of ``imagenet.py``, or has networks that ``studies/layers/networks.py`` trained on CIFAR-100; run it for
each. All go into one record, with tasks NETWORK/ROWS OF A CLASS/FOLD OR DRAW.

The plan, written before anything was run. On ImageNet-1K with four pictures of each class as training rows, four
methods are ahead of ``pnml``: ``mahalanobis-layers``, ``nnguide``, ``mahalanobis-plus`` and, by a tenth of a point,
``pnml-last``. ``vim``, the next below, is run along. What is compared is the lead of ``pnml``: its AUROC, the mean of
near and far, minus that of another method fitted on the same rows.

1. ImageNet, 1 to 4 pictures of a class. Fold f tests picture f of each class, as before, and fits on the next ones
   (f + 1, f + 2, ..., from the first again after the last), so that four are the rows of the published table. For a
   method, this says yes if the lead of ``pnml`` rises from 2 to 3 to 4, and the rise from 2 to 4 is more than two
   standard errors over the folds; it speaks against if the lead falls by as much. One picture is shown and does not
   count: within a class nothing varies then. Folds share pictures, so their standard error is rather too small.
2. CIFAR-100, 4, 8, 16, 32, 100 and all 500 training images of a class, on the five most accurate of the networks that
   were kept, one of each architecture. Near is CIFAR-10. Fewer than 100 are drawn three times. For a method, this says
   yes if ``pnml`` is behind it at 4 and ahead of it at 500 in the mean over networks, and the rise of the lead is more
   than two standard errors over networks; it speaks against if the lead falls by as much.

Few rows are the reason if both say yes for each of the first three methods; they are not if neither does for any.
Anything else is an answer in part, and is told by method. What this cannot tell apart: the rows of ImageNet were never
seen by its network, those of CIFAR-100 were trained on; and four of a class are 4,000 rows there, and 400 here.

Changed when the first tasks had run and their scores were seen, as they took too long: ``mahalanobis-plus`` is computed
for all classes at once, by the same formula in float64; and the networks after ``mobile`` have 100 images of a class at
most, of which fewer are drawn, so that 100 stands for 500 in the plan.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from pnml_bench.data import load
from pnml_bench.methods import ALL_METHODS, View
from studies.families.all_classes import take_all_classes_at_once
from studies.families.family import Part, Task, run_family
from studies.families.imagenet import FOLDS, outputs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml_bench.data import ImageSet
    from pnml_bench.zoo import Network

METHODS = ("pnml", "pnml-last", "mahalanobis-layers", "nnguide", "mahalanobis-plus", "vim")
PICTURES = (1, 2, 3, 4)  # of a class of ImageNet
IMAGES = (4, 8, 16, 32, 100)  # of a class of CIFAR-100
DRAWS, DRAWN_ONCE = 3, 100
NETWORKS = ("resnet9", "resnet-smooth", "mobile", "convmixer", "wrn")
FAR = ("svhn", "tinyimagenet_crop", "tinyimagenet_resize", "isun", "uniform", "gaussian")
TESTED, STRANGE = 2000, 500  # images of the test set, and of each OOD set


def following(labels: NDArray[np.int64], fold: int, count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows to fit on and to test, of sorted labels: in each class, those after the one of the fold."""
    of_class = np.bincount(labels)
    if of_class.min() <= count:
        raise ValueError(f"expected more than {count} rows of each class, got {of_class.min()} of one: add pictures")
    first = np.searchsorted(labels, np.arange(len(of_class)))
    chosen = [first + (fold + step) % of_class for step in range(count + 1)]
    return np.sort(np.concatenate(chosen[1:])), chosen[0]


def drawn(labels: NDArray[np.int64], count: int, seed: int) -> NDArray[np.intp]:
    """Return so many random rows of each class; more of them contain the fewer of the same seed."""
    order = np.random.default_rng(seed).permutation(len(labels))
    sorted_order = order[np.argsort(labels[order], kind="stable")]
    first = np.searchsorted(labels[sorted_order], labels[sorted_order])
    return np.sort(sorted_order[np.arange(len(labels)) - first < count])


def photographs(folder: Path, count: int, fold: int) -> Task:
    """Return the task of a fold of ImageNet with so many pictures of a class."""
    head, layers, parts = outputs(folder)
    labels = parts["val"].labels
    assert labels is not None  # noqa: S101 - for mypy
    train, test = following(labels, fold, count)
    oods = {name: part for name, part in parts.items() if name != "val"}
    return Task(head, layers, parts["val"].of(train, labels[train]), parts["val"].of(test, labels[test]), oods)


def part(network: Network, images: ImageSet) -> Part:
    """Return the rows of a set of small images."""
    print(images, flush=True)
    view = View(network, images)
    features = view.features(view.layers)  # first, so that embeddings need no pass of their own
    return Part(view.embeddings, features, images.labels)


def pool() -> ImageSet:
    """Return the training images of CIFAR-100 that are fitted on, as many of each class."""
    images = load("cifar100", split="train")
    assert images.labels is not None  # noqa: S101 - for mypy
    rows = drawn(images.labels, max(IMAGES), 0)
    return replace(images, images=images.images[rows], labels=images.labels[rows])


@lru_cache(maxsize=1)
def small_images(path: Path) -> Task:
    """Return the task of a network with the most training images."""
    from studies.layers.networks import read

    network = read(path).eval()
    layers = View(network, load("cifar100", limit=4)).layers
    train, test = part(network, pool()), part(network, load("cifar100", limit=TESTED))
    oods = {"near: cifar10": part(network, load("cifar10", limit=STRANGE))}
    oods |= {f"far: {name}": part(network, load(name, limit=STRANGE)) for name in FAR}
    return Task(network.head, layers, train, test, oods)


def fewer(path: Path, count: int, draw: int) -> Task:
    """Return the task of a network with so many training images of a class."""
    task = small_images(path)
    labels = task.train.labels
    assert labels is not None  # noqa: S101 - for mypy
    rows = drawn(labels, count, draw)
    return task._replace(train=task.train.of(rows, labels[rows]))


def tasks(folder: Path) -> dict[str, Callable[[], Task]]:
    """Return the tasks of a folder of photographs or of networks."""
    if (folder / "val").is_dir():
        return {f"lite0/{n}/{fold}": partial(photographs, folder, n, fold) for n in PICTURES for fold in FOLDS}
    paths = {name: folder / f"{name}_cifar100_0.safetensors" for name in NETWORKS}
    found = {name: path for name, path in paths.items() if path.exists()}
    if not found:
        wanted = ", ".join(path.name for path in paths.values())
        raise SystemExit(f"{folder} has neither a folder val nor one of {wanted}: see --help")
    return {
        f"{name}/{count}/{draw}": partial(fewer, path, count, draw)
        for name, path in found.items()
        for count in IMAGES
        for draw in range(DRAWS if count < DRAWN_ONCE else 1)
    }


if __name__ == "__main__":
    take_all_classes_at_once()
    run_family("rows-a-class", __doc__, tasks, {name: ALL_METHODS[name] for name in METHODS})
