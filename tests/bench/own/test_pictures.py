"""The benchmark on a network and pictures of one's own, through the command line."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from safetensors.torch import save_file
from scipy.special import softmax
from sklearn.metrics import roc_auc_score

import pnml
from pnml_bench.store import load_study

from .files import CLASSES, COMMAND, MINE, SIDE, bench, network, pictures, prepared, read_pictures, write_pictures
from .files import pnml as run


def outputs(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return embeddings and logits of pictures, in float64."""
    model = network().double()
    with torch.no_grad():
        embeddings = model[:-1](prepared(pixels).double())
        return embeddings.numpy(), model[-1](embeddings).numpy()


def auroc(ind: np.ndarray, ood: np.ndarray) -> float:
    truth = np.repeat([0, 1], [len(ind), len(ood)])
    return float(100 * roc_auc_score(truth, np.concatenate([ind, ood])))


def measured(study: str = "own") -> dict[tuple[str, str], float]:
    """Return the AUROC of every OOD set and method."""
    found = load_study("results", study)
    return {(one.ood, one.method): one.scores.method.auroc for one in found if one.scores is not None}


def expected(oods: dict[str, np.ndarray]) -> dict[tuple[str, str], float]:
    """Compute the numbers of three methods by hand."""
    train, test = (read_pictures(f"photos/{split}") for split in ("train", "test"))
    labels = np.repeat(np.arange(3), 20)
    embeddings, _ = outputs(train)
    means = np.stack([embeddings[labels == number].mean(axis=0) for number in range(3)])
    guard = pnml.guard(network()).fit([prepared(train)], progress=False)

    def scores(pixels: np.ndarray) -> dict[str, np.ndarray]:
        rows, logits = outputs(pixels)
        distances = np.linalg.norm(rows[:, None] - means, axis=2).min(axis=1)
        regret = guard(prepared(pixels)).regret.numpy()
        return {"baseline": 1 - softmax(logits, axis=1).max(axis=1), "mine-detector": distances, "pnml": regret}

    inside = scores(test)
    return {
        (ood, method): auroc(inside[method], outside)
        for ood, pixels in oods.items()
        for method, outside in scores(pixels).items()
    }


def test_numbers_are_those_of_an_explicit_computation(folder: Path) -> None:
    done = bench(f"{COMMAND} --ood other/ --method baseline,pnml,mine.py:Detector")
    assert done.exit_code == 0, done.output
    assert measured() == pytest.approx(expected({"other": read_pictures("other")}), abs=0.2)
    _, logits = outputs(read_pictures("photos/test"))
    first = load_study("results", "own")[0]
    assert first.accuracy == pytest.approx(100 * np.mean(logits.argmax(1) == np.repeat(np.arange(3), 10)))
    assert f"classifies {first.accuracy:.1f}% of the test samples of photos correctly" in done.output
    assert first.counts == {"train": 60, "ind": 30, "ood": 20}
    assert (folder / "results" / "cells.csv").exists()


def test_a_result_records_what_was_run(folder: Path) -> None:
    line = f"{COMMAND} --ood other/ --method mine.py:Detector --limit 10"
    assert bench(line).exit_code == 0
    (result,) = load_study("results", "own-limit-10")
    assert result.key == ("mine-create", "photos", "other", "mine-detector")
    code = hashlib.sha256((folder / "mine.py").read_bytes()).hexdigest()
    own = result.settings["own"]
    assert (own["model"], own["file"], own["method"]) == ("mine.py:create", code, code)
    assert own["preparation"]["shape"] == [SIDE, SIDE]
    assert set(own["sets"]) == {"train", "test", "ood"}
    assert len(set(own["sets"].values())) == 3
    assert result.checkpoint == f"mine.py:create ({own['weights'][:12]})"
    assert result.counts == {"train": 10, "ind": 10, "ood": 10}
    assert result.settings["notes"]["ood"] == "limited to 10 of 20, evenly spaced"
    assert result.command == (
        "pnml bench --model mine.py:create --ind photos/train --test photos/test --weights mine.safetensors "
        "--ood other/ --method mine.py:Detector --device cpu --batch-size 50 --limit 10 --study own"
    )


def test_parquet_and_folders_give_the_same_numbers(folder: Path) -> None:
    for name in ("photos/train", "photos/test", "other"):
        files = sorted(Path(name).rglob("*.png"))
        columns = {"picture": [file.read_bytes() for file in files]}
        if name != "other":
            columns["label"] = [CLASSES.index(file.parent.name) for file in files]  # type: ignore[misc]
        pa.parquet.write_table(pa.table(columns), f"{name}.parquet")
    methods = "--method baseline,pnml,mine.py:Detector"
    assert bench(f"{COMMAND} --ood other/ {methods}").exit_code == 0
    tables = COMMAND.replace("/train", "/train.parquet").replace("/test", "/test.parquet")
    done = bench(f"{tables} --ood other.parquet {methods} --study tables")
    assert done.exit_code == 0, done.output
    assert measured("tables") == measured("own")
    assert {result.ind for result in load_study("results", "tables")} == {"photos"}


def test_results_are_shown(folder: Path) -> None:
    assert bench(f"{COMMAND} --ood other/ --method baseline,mine.py:Detector --keep-scores").exit_code == 0
    board = run("leaderboard")
    assert "### mine-create, photos" in board.stdout
    assert "| mine-detector |" in board.stdout
    page = run("report results --out page.html")
    assert page.exit_code == 0, page.output
    assert "mine-create" in (folder / "page.html").read_text(encoding="utf-8")
    tables = run("tables")
    assert tables.exit_code == 1
    assert "the study 'own' has no result of the paper's tables, only of mine-create: pnml leaderboard" in tables.stderr


def test_a_finished_run_computes_nothing_until_something_of_ones_own_changes(folder: Path) -> None:
    line = f"{COMMAND} --ood other/ --method baseline,mine.py:Detector"
    assert bench(line).exit_code == 0
    before = (folder / "results" / "cells.csv").read_text()
    assert bench(line).exit_code == 0
    assert (folder / "results" / "cells.csv").read_text() == before
    (folder / "mine.py").write_text(MINE.replace(".amin(dim=1)", ".amax(dim=1)"))  # code is measured again
    assert bench(line).exit_code == 0
    assert len((folder / "results" / "cells.csv").read_text().splitlines()) == 2 * len(before.splitlines()) - 1
    write_pictures(folder / "other", pictures(2, seed=9)[0])
    refused = bench(line)
    assert refused.exit_code == 1
    assert (
        "has a result of mine-create__photos__other__baseline with another ood: give another --results"
        in refused.stderr
    )
    assert bench(f"{line} --force").exit_code == 0
    model = network()
    torch.nn.init.ones_(model[-1].weight)  # type: ignore[arg-type]
    save_file(model.state_dict(), folder / "mine.safetensors")
    assert "with the checkpoint mine.py:create (" in bench(line).stderr


@pytest.mark.parametrize("method", ["pnml-paper", "knn-layers", "nac"])
def test_methods_of_every_kind_run_on_ones_own_network(method: str, folder: Path) -> None:
    done = bench(f"{COMMAND} --ood other --method {method} --batch-size 7")
    assert done.exit_code == 0, done.output
    assert (folder / "results").exists()


def test_networks_in_bfloat16_run(folder: Path) -> None:
    (folder / "mine.py").write_text(MINE + "\ndef converted():\n    return create().bfloat16()\n")
    line = COMMAND.replace(":create", ":converted")
    done = bench(f"{line} --ood other --method baseline,pnml,vim,mine.py:Detector")
    assert done.exit_code == 0, done.output
    assert "0 not run" in done.stdout


INSIDE = """
import torch

class Inside:  # the energy, by running the network once more
    def fit(self, train):
        (self.row,) = {len(x[0]) for x in train.inputs()}

    def score(self, samples):
        return -torch.cat([samples.network(x).detach() for x in samples.inputs()]).logsumexp(dim=1)

class Layers(Inside):
    needs_features = True

    def score(self, samples):
        return sum(features.sum(dim=1) for features in samples.features(samples.layers))

class NoLayers(Layers):
    needs_features = False

class Steepness(Inside):  # needs gradients
    def score(self, samples):
        found = []
        for x in samples.inputs():
            x = x.clone().requires_grad_()
            (slope,) = torch.autograd.grad(samples.network(x).logsumexp(dim=1).sum(), x)
            found.append(slope.flatten(1).norm(dim=1))
        return torch.cat(found)

class Backwards(Inside):
    def score(self, samples):
        return -samples.embeddings.norm(dim=1).double().numpy() - 100.0 * samples.logits[:, 0].numpy()

class Forwards(Backwards):
    def score(self, samples):
        return -super().score(samples)
"""


def test_methods_that_ask_for_features_get_those_of_earlier_layers(folder: Path) -> None:
    (folder / "inside.py").write_text(INSIDE)
    done = bench(f"{COMMAND} --ood other --method inside.py:NoLayers")
    assert "write needs_features = True into the class of the method" in done.stderr
    done = bench(f"{COMMAND} --ood other --method inside.py:Layers")
    assert done.exit_code == 0, done.output
    guard = pnml.guard(network()).fit([prepared(read_pictures("photos/train"))], progress=False)
    sums = []
    for name in ("photos/test", "other"):
        features = guard.run((prepared(read_pictures(name)),), {}).features
        sums.append(np.sum([layer.sum(dim=1).detach().numpy() for layer in features], axis=0))
    assert measured()["other", "inside-layers"] == pytest.approx(auroc(*sums), abs=0.2)


def test_a_score_of_the_wrong_sign_is_named(folder: Path) -> None:
    (folder / "inside.py").write_text(INSIDE)
    done = bench(f"{COMMAND} --ood other --method inside.py:Backwards,inside.py:Forwards")
    assert done.exit_code == 0, done.output
    below = [method for (_, method), auroc in measured().items() if auroc < 50]
    assert len(below) == 1
    assert f"note: {below[0]} has an AUROC below 50 on every set: a larger score has to mean more" in done.stdout
