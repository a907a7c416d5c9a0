"""Queries to an assistant: CLINC150, and the 1,000 queries that belong to none of its 150 intents.

    python -m studies.families.clinc150 --data FOLDER

FOLDER has ``data_full.json``, ``data_small.json`` and ``data_imbalanced.json`` of github.com/clinc/oos-eval (Larson et
al. 2019; commit 828f809, folder data). The encoder and the two kinds of classifiers are those of ``text.py`` and
``text_fine_tuned.py``; nothing is chosen by these queries, and no query is left out.

The plan, written before any score of these data was computed:

- **frozen/SET**: a logistic regression on the frozen encoder, for each of the published training sets: full (100
  queries of an intent), small (50) and imbalanced (25, 50, 75 or 100). The spread is over the three. They share queries
  with each other, and all are tested with the same ones, so it says nothing of how other queries would come out.
- **fine-tuned/SEED**: the classifier of ``text_fine_tuned.py``, five epochs, whatever its accuracy is; trained on the
  small set with three seeds. The full set was timed first, and would have taken more than 40 minutes of a core.
- Tested: the 4,500 queries of the part "test". Near: the 1,000 queries of the part "oos_test", which were written for
  an assistant, too. Far: the pieces of Python's standard library of ``text.py``. Queries that the parts "val",
  "oos_val" and "oos_train" have are not used.
- The tables have all methods, and the mean of near and far decides, as for BANKING77.

What is expected. On the frozen encoder:

1. ``pnml`` is among the first three of the methods that need no OOD data.
2. Earlier layers change the mean of near and far by less than half a point, ``pnml`` beside ``pnml-last``.
3. ``knn`` and ``mahalanobis`` are less than five points behind ``pnml`` on near queries, and not the eleven to fourteen
   of BANKING77: out-of-scope queries are about other things, where left-out intents lie amidst the known ones.

On the fine-tuned classifiers:

4. ``pnml`` is behind the first by less than half a point.
5. ``mahalanobis-plus`` is ahead of it on near queries, and ``pnml`` ahead of that on code.

The page says of each whether it came out so.
"""

from __future__ import annotations

import json
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from studies.families.family import Task, run_family
from studies.families.text import code, encode, with_regression
from studies.families.text_fine_tuned import Texts, fine_tune

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.pytorch.layers import Layer
    from studies.families.family import Part

SETS = ("full", "small", "imbalanced")
SEEDS, TRAINED = range(3), "small"
NEAR, FAR = "near: out-of-scope queries", "far: code"


def queries(folder: Path, name: str, part: str) -> tuple[list[str], NDArray[np.str_]]:
    """Return the queries of a part of one of the files, and their intents."""
    data = json.loads((folder / f"data_{name}.json").read_text(encoding="utf-8"))
    texts, intents = zip(*data[part], strict=True)
    return list(texts), np.array(intents)


def strangers(folder: Path) -> dict[str, list[str]]:
    """Return the texts that are no known query; the three files have the same."""
    return {NEAR: queries(folder, TRAINED, "oos_test")[0], FAR: code()}


def numbered(folder: Path, name: str) -> dict[str, Texts]:
    """Return the known queries of one of the files for training and test, with their intents as numbers."""
    parts = {part: queries(folder, name, part) for part in ("train", "test")}
    intents = np.unique(parts["train"][1])
    if not np.array_equal(intents, np.unique(parts["test"][1])):
        raise ValueError(f"the training and test queries of {name} have different intents")
    return {part: Texts(texts, np.searchsorted(intents, named)) for part, (texts, named) in parts.items()}


@cache
def encoded(folder: Path) -> tuple[tuple[Layer, ...], dict[str, Part]]:
    """Return the layers of the frozen encoder, and its outputs on training sets, test queries and the others."""
    training = {name: queries(folder, name, "train")[0] for name in SETS}
    return encode(training | {"test": queries(folder, TRAINED, "test")[0]} | strangers(folder))


def frozen(folder: Path, name: str) -> Task:
    layers, outputs = encoded(folder)
    sets = numbered(folder, name)
    train, test = (outputs[key]._replace(labels=sets[part].labels) for key, part in ((name, "train"), ("test", "test")))
    return with_regression(layers, train, test, {kind: outputs[kind] for kind in (NEAR, FAR)})


def fine_tuned(folder: Path, seed: int) -> Task:
    return fine_tune(numbered(folder, TRAINED), strangers(folder), seed)


def tasks(folder: Path) -> dict[str, Callable[[], Task]]:
    """Return the tasks of both kinds of classifiers."""
    return {
        **{f"frozen/{name}": partial(frozen, folder, name) for name in SETS},
        **{f"fine-tuned/{seed}": partial(fine_tuned, folder, seed) for seed in SEEDS},
    }


if __name__ == "__main__":
    run_family("clinc150", __doc__, tasks)
