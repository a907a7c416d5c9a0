"""How networks were trained, from their files to a record: ``results/trainings.json``, by file name and digest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from pnml_bench.options import Options
from studies.records import write_record

if TYPE_CHECKING:
    from pathlib import Path

KEPT = ("train_images", "epochs", "seed", "start", "outliers", "test_accuracy", "arithmetic", "torch", "date")
IF_TUNED = ("accuracy_before",)


def read_trainings(results: Path) -> dict[str, dict[str, Any]]:
    """Return what is known of each network, by its name in ``cells.csv``."""
    path = results / "trainings.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def note_trainings(weights: Path, results: Path) -> None:
    """Add the finished networks of a folder to the record."""
    known = read_trainings(results)
    for path in sorted(weights.glob("*.safetensors")):
        if not path.stem.endswith(".partial"):
            known[str(Options(checkpoint=path).own_checkpoint)] = training_of(path)
    write_record(results / "trainings.json", dict(sorted(known.items())), depth=1)


def training_of(path: Path) -> dict[str, Any]:
    """Return how the network of a file was trained."""
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    kept = [*KEPT, *(name for name in IF_TUNED if name in metadata)]
    return {"recipe": json.loads(metadata["recipe"]), **{name: metadata[name] for name in kept}}
