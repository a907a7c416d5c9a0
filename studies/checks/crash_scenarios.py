"""Commands that write, with the files they read: what ``crashes.py`` kills."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pnml import Detector
from pnml.core.correlation import Correlation
from pnml.io.head import read_head
from studies.checks.campaign_files import CLASSES, FEATURES, VALID, make_files


@dataclass(frozen=True)
class Scenario:
    """A command that writes.

    Attributes:
        words: of the command, or a name of ``CALLS`` with its arguments.
        beside: valid files and folders that it changes, copied into its folder.
        needs: a module without which it is left out.
        is_remote: its files are written by other processes, into the folder "out".
        is_done_once: it refuses to run again once it is done.
    """

    words: str
    beside: tuple[str, ...] = ()
    needs: str = "pnml"
    is_remote: bool = False
    is_done_once: bool = False

    @property
    def reason_to_skip(self) -> str:
        """Return why it cannot run here, nothing if it can."""
        return "" if find_spec(self.needs) else f"{self.needs} is not installed"


_FIT = f"fit --embeddings {VALID}/many.npy --head {VALID}/head.npz --out"
_SCORE = f"score {VALID}/detector.safetensors --embeddings {VALID}/many.npy --out"
_MODEL = f"--model made_here:create --weights {VALID}/model.safetensors"
_IMAGES = f"score {VALID}/guarded.safetensors {_MODEL} --batch-size 1"
_RAY = f"--embeddings {VALID}/many.parquet --engine ray --cpus 2"
SCENARIOS = {
    "fit": Scenario(f"{_FIT} out.safetensors"),
    "fit again": Scenario(f"{_FIT} detector.safetensors", ("detector.safetensors",)),
    "fit images": Scenario(f"fit {_MODEL} --images {VALID}/pictures --out out.safetensors", ("made_here.py",)),
    "calibrate": Scenario(f"calibrate detector.safetensors --embeddings {VALID}/rows.npy", ("detector.safetensors",)),
    "merge": Scenario(f"merge {VALID}/first.statistic {VALID}/second.statistic {VALID}/head.npz"),
    "score to csv": Scenario(f"{_SCORE} out.csv"),
    "score to parquet": Scenario(f"{_SCORE} out.parquet"),
    "score again": Scenario(f"{_SCORE} scores.csv", ("scores.csv",)),
    "score anew": Scenario(f"{_SCORE} scores.parquet --restart", ("scores.parquet",)),
    "score images": Scenario(f"{_IMAGES} --images {VALID}/pictures --out out.csv", ("made_here.py",)),
    "score images of a table": Scenario(
        f"{_IMAGES} --images {VALID}/pictures.parquet --out out.parquet", ("made_here.py",)
    ),
    "report": Scenario(f"report {VALID}/scored.csv --detector {VALID}/detector.safetensors --out out.html"),
    "report of results": Scenario(f"report {VALID}/results --out out.html"),
    "monitor": Scenario(
        f"monitor {VALID}/scored.csv --state monitor.safetensors --out out.html",
        ("monitor.safetensors",),
        is_done_once=True,
    ),
    "tables": Scenario(f"tables --results {VALID}/results --out out"),
    "leaderboard": Scenario(f"leaderboard --results {VALID}/results --out out.md"),
    "export": Scenario(
        f"export {VALID}/guarded.safetensors {_MODEL} --example-shape 3,4,4 --out out.onnx",
        ("made_here.py",),
        needs="onnxscript",
    ),
    "demo": Scenario("demo --out out", needs="sklearn"),
    "fit on ray": Scenario(f"fit {_RAY} --head {VALID}/head.npz --out out.safetensors", needs="ray"),
    "score on ray": Scenario(
        f"score {VALID}/detector.safetensors {_RAY} --out out",
        needs="ray",
        is_remote=True,
    ),
}


def merge(first: str, second: str, head: str) -> None:
    """Add two statistics, keep the sum, and fit a detector on it."""
    total = Correlation.load(first) + Correlation.load(second)
    total.save("sum.statistic")
    Detector(*read_head(Path(head))).merge(total).save("out.safetensors")


CALLS = {"merge": merge}
"""What the command line has no command for."""


def make_inputs(folder: Path) -> None:
    """Write every file that a scenario reads into a new folder."""
    make_files(folder)
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(800, FEATURES)).astype(np.float32)
    np.save(folder / "many.npy", rows)
    many = np.tile(rows, (5, 1))
    pq.write_table(pa.table({"embedding": many.tolist()}), folder / "many.parquet", row_group_size=100)
    for name in ("first", "second"):
        statistic = Correlation(FEATURES, unit_norm=True, n_classes=CLASSES)
        statistic.update(rng.normal(size=(60, FEATURES)), rng.integers(0, CLASSES, 60)).save(
            folder / f"{name}.statistic"
        )
