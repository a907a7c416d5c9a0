"""The benchmark on a network and texts of one's own, through the command line."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from scipy.special import logsumexp, softmax
from sklearn.metrics import roc_auc_score

from pnml_bench.store import load_study

from .files import bench, pnml

if TYPE_CHECKING:
    from pathlib import Path

CODE = """
import torch
from torch import nn

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(64, 6), nn.Linear(6, 2)

    def forward(self, numbers, mask=None):
        words = torch.tanh(self.words(numbers))
        weights = torch.ones_like(words[..., :1]) if mask is None else mask[..., None]
        return {"logits": self.head((words * weights).sum(dim=1) / weights.sum(dim=1))}

def padded(texts):
    rows = [[len(word) % 7 + 7 * (ord(word[0]) % 9) for word in text.split()] for text in texts]
    longest = max(map(len, rows))
    numbers = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1.0] * len(row) + [0.0] * (longest - len(row)) for row in rows])
    return {"numbers": numbers, "mask": mask}

def create():
    torch.manual_seed(0)
    return Classifier(), padded

def as_tuple():
    model, tokenize = create()
    return model, lambda texts: (tokenize(texts)["numbers"], tokenize(texts)["mask"])

def broken():
    model, tokenize = create()
    return model, lambda texts: tokenize(texts)["nothing"]

def too_few():
    model, tokenize = create()
    return model, lambda texts: tokenize(texts[:1])

def alone():
    return create()[0]
"""
WORDS = ["seat", "card", "limit", "gate", "bank", "flight", "account", "ticket", "statement", "a"]
SETS = {"train": 40, "test": 25, "other": 15}
COMMAND = "--ind train.parquet --test test.parquet --ood other.parquet --column text --device cpu --batch-size 8"


def texts(name: str) -> list[str]:
    rng = np.random.default_rng(sorted(SETS).index(name))
    chosen = WORDS if name != "other" else ["zebra", "xylophone", "i", "umbrellas"]
    return [" ".join(rng.choice(chosen, size=rng.integers(2, 7))) for _ in range(SETS[name])]


def labels(name: str) -> list[int]:
    return [len(text) % 2 for text in texts(name)]


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "words.py").write_text(CODE)
    for name in SETS:
        pa.parquet.write_table(pa.table({"text": texts(name), "label": labels(name)}), f"{name}.parquet")
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["text", "label"], *zip(texts(name), labels(name), strict=True)])
    return folder


def outputs(name: str) -> np.ndarray:
    """Return the logits of a set, one text at a time and without padding, in float64."""
    namespace: dict[str, Any] = {}
    exec(CODE, namespace)  # noqa: S102
    model, tokenize = namespace["create"]()
    with torch.no_grad():
        rows = [model.double()(tokenize([text])["numbers"])["logits"] for text in texts(name)]
    return np.concatenate([row.numpy() for row in rows])


def measured(study: str = "own") -> dict[str, float]:
    return {one.method: one.scores.method.auroc for one in load_study("results", study) if one.scores is not None}


def test_numbers_are_those_of_an_explicit_computation(folder: Path) -> None:
    done = bench(f"--model words.py:create {COMMAND} --method baseline,energy,pnml,mahalanobis --keep-scores")
    assert done.exit_code == 0, done.output
    inside, outside = outputs("test"), outputs("other")
    truth = np.repeat([0, 1], [len(inside), len(outside)])
    logits = np.concatenate([inside, outside])
    found = measured()
    assert found["baseline"] == pytest.approx(100 * roc_auc_score(truth, 1 - softmax(logits, axis=1).max(1)), abs=0.4)
    assert found["energy"] == pytest.approx(100 * roc_auc_score(truth, -logsumexp(logits, axis=1)), abs=0.4)
    assert set(found) == {"baseline", "energy", "pnml", "mahalanobis"}
    result = load_study("results", "own")[0]
    assert result.accuracy == pytest.approx(100 * np.mean(inside.argmax(1) == labels("test")))
    assert result.key[:3] == ("words-create", "train", "other")
    assert result.settings["own"]["column"] == "text"
    page = pnml("report results --out page.html")  # without pictures
    assert page.exit_code == 0, page.output
    assert (folder / "page.html").exists()


@pytest.mark.parametrize("change", [("parquet", "csv"), ("create", "as_tuple")])
def test_files_and_tokenizers_of_other_forms_give_the_same_numbers(change: tuple[str, str], folder: Path) -> None:
    line = f"--model words.py:create {COMMAND} --method baseline,pnml"
    for file in folder.glob("*.csv"):
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())  # as Excel begins a file
    assert bench(line).exit_code == 0
    done = bench(f"{line.replace(*change)} --study other")
    assert done.exit_code == 0, done.output
    assert measured("other") == measured("own")
    assert (folder / "results").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"--model words.py:alone {COMMAND}", "words.py:alone returns a model alone: return (model, tokenize)"),
        (f"--model words.py:broken {COMMAND}", "the tokenizer failed on 8 texts of train.parquet with KeyError"),
        (f"--model words.py:too_few {COMMAND}", "the network gives 5 answers for train.parquet (40 texts)"),
        (f"--model words.py:create {COMMAND} --size 8", "--size, --mean and --std are for pictures"),
        (f"--model words.py:create {COMMAND}".replace("text", "label"), "has 0 in the column 'label', row 0: expected"),
        (f"--model words.py:create {COMMAND}".replace("train.parquet", "photos"), "photos is neither a .parquet nor"),
        (f"--model words.py:create {COMMAND}".replace("train.parquet", "empty.csv"), "empty.csv is empty: no texts"),
        (f"--model words.py:create {COMMAND}".replace("train.parquet", "bad.csv"), "has 'two' as 'label' in row 1"),
        (
            f"--model words.py:create {COMMAND}".replace("train.parquet", "many.csv"),
            "many.csv has the label 7, and the",
        ),
        (
            f"--model words.py:create {COMMAND}".replace("other.parquet", "noise"),
            "the OOD set 'uniform' holds pictures",
        ),
    ],
)
def test_what_is_wrong_is_named(line: str, message: str, folder: Path) -> None:
    (folder / "empty.csv").write_text("text,label\n")
    (folder / "bad.csv").write_text("text,label\none card,0\ntwo cards,two\n")
    (folder / "many.csv").write_text("text,label\none card,0\ntwo cards,7\n")
    done = bench(line)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in {1, 2}
    assert message in " ".join(done.stderr.split())
    assert "unexpected" not in done.stderr
