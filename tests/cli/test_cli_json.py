"""``--json`` holds what the text says, as numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pnml import Detector

from .cli_files import CLASSES, FEATURES, run, table_of

if TYPE_CHECKING:
    from .cli_files import Files

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "command-line.md"


def facts_of(*words: object) -> dict[str, Any]:
    """Run a command with and without --json; return its one line of JSON, once stderr has the text of the other run."""
    plain, done = run(*words), run(*words, "--json")
    assert (plain.exit_code, done.exit_code) == (0, 0), done.output
    assert plain.stdout in done.stderr
    (line,) = done.stdout.splitlines()
    facts: dict[str, Any] = json.loads(line)
    return facts


def documented_keys(command: str) -> set[str]:
    """Return the keys that the guide lists for a command."""
    (row,) = re.findall(rf"^\| `{command}` \|(.*)\|$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    return set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", row)))


def documented_inner_keys(command: str, key: str) -> set[str]:
    """Return the keys that the guide lists in parentheses behind a key."""
    text = GUIDE.read_text(encoding="utf-8")
    (inner,) = re.findall(rf"^\| `{command}` \|.*`{key}` \(([^)]*)\)", text, re.MULTILINE)
    return set(re.findall(r"`(\w+)`", inner))


def test_fit(files: Files) -> None:
    out = files / "d.safetensors"
    found = facts_of("fit", "--embeddings", files / "train.npy", "--head", files / "head.npz", "--out", out)
    assert set(found) == documented_keys("fit") | {"warnings"}
    rows = files.train / np.linalg.norm(files.train, axis=1, keepdims=True).astype(np.float64)
    eigenvalues = np.linalg.eigvalsh(rows.T @ rows)[::-1][:5]
    share = eigenvalues / eigenvalues.sum()
    assert found["effective_rank"] == pytest.approx(np.exp(-(share * np.log(share)).sum()), rel=1e-6)
    assert found["directions_of_99_percent"] == 1 + np.sum(np.cumsum(share) < 0.99)
    assert (found["rows"], found["features"], found["classes"], found["rank"]) == (300, FEATURES, CLASSES, 5)
    assert (found["detector"], found["layers"], found["skipped"]) == (str(out), {}, [])


def test_calibrate_score_and_inspect(files: Files) -> None:
    path, out = files.fitted(), files / "scores.csv"
    found = facts_of("score", path, "--embeddings", files / "new.npy", "--out", out)
    assert found["threshold"] is None
    assert found["flagged"] is None

    calibrated = facts_of("calibrate", path, "--embeddings", files / "held.npy", "--false-alarm-rate", 0.1)
    assert set(calibrated) == documented_keys("calibrate") | {"warnings"}
    regrets = np.sort(Detector.load(path)(files.held).to_table()["regret"])
    threshold = calibrated["threshold"]
    assert set(threshold) == documented_inner_keys("calibrate", "threshold")
    assert threshold["value"] == pytest.approx(regrets[89], rel=1e-6)  # ⌈100 · 0.9⌉ = 90th of 99
    assert (threshold["samples"], threshold["false_alarm_rate"], threshold["source"]) == (99, 0.1, "held-out")
    assert 0 < threshold["interval"][0] < 0.1 < threshold["interval"][1] < 1

    found = facts_of("score", path, "--embeddings", files / "new.npy", "--out", out)
    assert set(found) == documented_keys("score") | {"warnings"}
    table = table_of(out)
    assert set(found["regret"]) == documented_inner_keys("score", "regret")
    assert found["out"] == str(out)
    assert found["rows"] == len(table["regret"]) == 100
    assert found["flagged"] == sum(table["is_ood"])
    assert found["threshold"] == threshold["value"]
    assert found["regret"]["min"] == pytest.approx(min(table["regret"]), rel=1e-6)
    assert found["regret"]["p95"] == pytest.approx(sorted(table["regret"])[94], rel=1e-3)
    assert found["regret"]["max"] == pytest.approx(max(table["regret"]), rel=1e-6)

    held = facts_of("inspect", path)
    assert set(held) == documented_keys("inspect") | {"warnings"}
    assert held["threshold"] == threshold
    assert held["mean_norm"] == pytest.approx(np.linalg.norm(files.train, axis=1).mean(), rel=1e-6)
    assert held["head_digest"] == Detector.load(path).head_digest
    assert held["bytes"] == path.stat().st_size
    assert [layer["name"] for layer in held["layers"]] == ["embedding"]


@pytest.mark.filterwarnings("always")
def test_warnings_are_in_the_object(files: Files) -> None:
    np.save(files / "train.npy", np.concatenate([files.train, np.zeros((2, FEATURES), np.float32)]))
    words = ("fit", "--embeddings", files / "train.npy", "--head", files / "head.npz", "--out", files / "d.safetensors")
    (warning,) = facts_of(*words)["warnings"]
    assert "2" in warning
    assert f"warning: {warning}" in run(*words).stderr
