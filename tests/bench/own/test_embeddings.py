"""The benchmark on embeddings in files, through the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from scipy.special import softmax
from sklearn.metrics import roc_auc_score

from pnml import Detector
from pnml_bench.store import load_study

from .files import bench, pnml

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = "--head last.npz --ind rows/train.npz --test rows/test.npz --ood far.npz --device cpu"
COUNTS = {"train": 90, "test": 40, "far": 30}


def sample() -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return embeddings, features of an earlier layer and labels of every set."""
    rng = np.random.default_rng(0)
    found = {}
    for name, count in COUNTS.items():
        labels = rng.integers(3, size=count)
        rows = rng.normal(size=(count, 6)) + 2 * np.eye(3, 6)[labels] * (name != "far")
        features = rng.normal(size=(count, 4)) * (3 if name == "far" else 1)
        found[name] = rows.astype(np.float32), features.astype(np.float32), labels
    return found


def save(path: Path, rows: np.ndarray, features: np.ndarray, labels: np.ndarray) -> None:
    arrays: dict[str, Any] = {"embedding": rows, "features.early": features, "label": labels}
    np.savez(path, **arrays)


WEIGHT, BIAS = 2 * np.eye(3, 6), np.array([0.1, 0.0, -0.1])


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "rows").mkdir()
    np.savez(folder / "last.npz", weight=WEIGHT, bias=BIAS)
    for name, (rows, features, labels) in sample().items():
        stem = name if name == "far" else f"rows/{name}"
        save(folder / f"{stem}.npz", rows, features, labels)
        columns = {"embedding": list(rows), "label": labels, "features.early": list(features)}
        pa.parquet.write_table(pa.table(columns), folder / f"{stem}.parquet")
    return folder


def measured(study: str = "own") -> dict[str, float]:
    return {one.method: one.scores.method.auroc for one in load_study("results", study) if one.scores is not None}


def test_numbers_are_those_of_an_explicit_computation(folder: Path) -> None:
    done = bench(f"{COMMAND} --method baseline,pnml,pnml-last,mine.py:Detector --keep-scores")
    assert done.exit_code == 0, done.output
    held = sample()
    truth = np.repeat([0, 1], [COUNTS["test"], COUNTS["far"]])
    rows = np.concatenate([held["test"][0], held["far"][0]]).astype(np.float64)
    features = np.concatenate([held["test"][1], held["far"][1]])
    train, early, labels = held["train"]
    means = np.stack([train[labels == number].mean(axis=0) for number in range(3)])
    expected = {
        "baseline": 1 - softmax(rows @ WEIGHT.T + BIAS, axis=1).max(axis=1),
        "mine-detector": np.linalg.norm(rows[:, None] - means, axis=2).min(axis=1),
        "pnml-last": Detector(WEIGHT, BIAS).fit(train).score(rows),
        "pnml": Detector(WEIGHT, BIAS).fit(train, features=[early]).score(rows, features=[features]),
    }
    aurocs = {name: 100 * roc_auc_score(truth, scores) for name, scores in expected.items()}
    assert measured() == pytest.approx(aurocs, abs=0.1)
    result = load_study("results", "own")[0]
    assert result.key[:3] == ("last", "rows", "far")
    test, _, classes = held["test"]
    assert result.accuracy == pytest.approx(100 * np.mean((test @ WEIGHT.T + BIAS).argmax(1) == classes))
    assert result.settings["own"]["model"] == "last.npz"
    assert pnml("report results --out page.html").exit_code == 0
    assert (folder / "page.html").exists()


def test_methods_that_run_the_network_say_that_there_is_none(folder: Path) -> None:
    (folder / "inside.py").write_text(
        "class Inside:\n    def fit(self, train):\n        pass\n\n"
        "    def score(self, samples):\n        return sum(1 for x in samples.inputs())\n"
    )
    done = bench(f"{COMMAND} --method baseline,nac,inside.py:Inside")
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    assert "there are embeddings alone, and no network with a layer 'early'" in said
    assert "rows/train.npz holds embeddings: there are no inputs of a network" in said


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (COMMAND.replace("train.npz", "gone.npz"), "there is no 'rows/gone.npz': expected a .npy, .npz, .csv or"),
        (COMMAND.replace("train.npz", "narrow.npz"), "has embeddings of 5 features, the head takes 6"),
        (COMMAND.replace("train.npz", "broken.npz"), "row 1 of rows/broken.npz, counted from 0, is not finite"),
        (COMMAND.replace("test.npz", "early.npz"), "row 2 of rows/early.npz, counted from 0, is not finite"),
        (COMMAND.replace("test.npz", "narrow.npz"), "has no features of the layer 'early'"),
        (
            COMMAND.replace("far.npz", "rows/wide.npz"),
            "rows/wide.npz has 8 features of the layer 'early', where 4 were fitted",
        ),
        (
            COMMAND.replace("train.npz", "strange.npz"),
            "rows/strange.npz has the label 3, and the network has 3 classes",
        ),
        (COMMAND.replace("far.npz", "svhn"), "the OOD set 'svhn' holds pictures"),
        (COMMAND.replace("last.npz", "far.npz"), "expected the last layer's 'weight'"),
        (COMMAND.replace("last.npz", "resnet-34.npz"), "your network gives its results the name 'resnet-34'"),
        (f"{COMMAND} --model mine.py:create", "give either --model, or --head for sets of embeddings"),
        (f"{COMMAND} --size 8", "--size goes with --model, not with --head"),
        (f"{COMMAND} --column nothing", "nothing"),
    ],
)
def test_what_is_wrong_is_named(line: str, message: str, folder: Path) -> None:
    np.savez(folder / "resnet-34.npz", weight=WEIGHT)
    np.savez(folder / "rows" / "narrow.npz", embedding=np.ones((4, 5)))
    np.savez(folder / "rows" / "broken.npz", embedding=np.array([[1.0] * 6, [np.inf] * 6]))
    rows, features, labels = sample()["train"]
    save(folder / "rows" / "strange.npz", rows, features, labels + 1)
    save(folder / "rows" / "wide.npz", rows, np.hstack([features, features]), labels)
    features[2, 3] = np.nan
    save(folder / "rows" / "early.npz", rows, features, labels)
    done = bench(line)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in {1, 2}
    assert message in " ".join(done.stderr.split())
    assert "unexpected" not in done.stderr
