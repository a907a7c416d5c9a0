"""Small valid files of every kind, and commands on them: what ``fuzz.py`` changes and ``crashes.py`` interrupts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from safetensors.numpy import save_file

from pnml import Detector
from pnml.core.monitor import Monitor
from pnml.engines import local
from pnml.engines.budget import within_budget
from pnml.io.embeddings import open_embeddings
from pnml.io.store import PartStore
from pnml.metrics import evaluate
from pnml.report.model import ScoredSet
from pnml_bench.results import Result, Run, Scores
from pnml_bench.saved_scores import SavedScores, save_scores, saved_scores_path
from pnml_bench.store import ResultStore

if TYPE_CHECKING:
    from pathlib import Path

    from pnml import Threshold

FEATURES, CLASSES, SIDE = 8, 3, 4
PARTS = "out.csv.parts"
VALID = "../valid"
"""The folder of the valid files, seen from that of a case."""

MODULE = f"""
from torch import nn

def create():
    layers = [nn.Linear({3 * SIDE * SIDE}, {FEATURES}), nn.Tanh(), nn.Linear({FEATURES}, {CLASSES})]
    return nn.Sequential(nn.Flatten(), *layers)
"""


@dataclass(frozen=True)
class Target:
    """A file to change, and the commands that read it.

    Attributes:
        file: its path below the folder of valid files, and below that of a case.
        commands: the words of each; a word that begins with "<" is the file that is given on standard input.
        beside: other files or folders that a case needs a copy of.
        blamed: files that an error may name instead, because the two do not fit.
        whole: the file that out.csv has to equal, whatever was damaged.
        has_odd_structure: whether it is also written with an odd structure, and not only damaged.
    """

    file: str
    commands: tuple[str, ...]
    beside: tuple[str, ...] = ()
    blamed: tuple[str, ...] = ()
    whole: str = ""
    has_odd_structure: bool = True


_FIT = f"fit --embeddings {{}} --head {VALID}/head.npz --out out.safetensors"
_SCORE = f"score {VALID}/detector.safetensors --embeddings {{}} --out out.csv"
_CALIBRATE = "calibrate detector.safetensors --embeddings {}"
_STREAM = f"score {VALID}/detector.safetensors --embeddings - --out out.csv <{{}}"
_REPORT = "report {} --out out.html"
_MONITOR = f"monitor {{}} --detector {VALID}/detector.safetensors --out out.html"
_IMAGES = f"score {VALID}/guarded.safetensors --model made_here:create --weights {VALID}/model.safetensors"
_RESULTS = ("tables --results results --out out", "leaderboard --results results --out out.md")


def _embeddings(file: str, *, streamed: bool = True) -> Target:
    commands = _FIT, _SCORE, _CALIBRATE, *((_STREAM,) if streamed else ())
    return Target(file, tuple(one.format(file) for one in commands), ("detector.safetensors",))


TARGETS = (
    _embeddings("rows.npy"),
    _embeddings("rows.npz"),
    _embeddings("rows.csv"),
    _embeddings("rows.parquet", streamed=False),
    _embeddings("wide.parquet", streamed=False),
    Target("layers.npz", (_FIT.format("layers.npz"),)),
    Target("layers.parquet", (_FIT.format("layers.parquet"),)),
    *(
        Target(
            f"head.{kind}",
            (f"fit --embeddings {VALID}/rows.npy --head head.{kind} --out out.safetensors",),
            blamed=("rows.npy",),
        )
        for kind in ("npz", "safetensors")
    ),
    Target(
        "detector.safetensors",
        (
            "inspect detector.safetensors",
            f"score detector.safetensors --embeddings {VALID}/rows.npy --out out.csv",
            f"calibrate detector.safetensors --embeddings {VALID}/rows.npy",
            f"report {VALID}/scored.csv --detector detector.safetensors --out out.html",
        ),
    ),
    *(
        Target(
            f"{PARTS}/{file}", (_SCORE.format(f"{VALID}/rows.npy"),), (PARTS,), (), "scored.csv", file.endswith("json")
        )
        for file in ("rows-000000000000-000000000030.npz", "_manifest.json")
    ),
    Target("scores.csv", (_REPORT.format("scores.csv"),)),
    Target("scores.parquet", (_REPORT.format("scores.parquet"),)),
    *(Target(f"scored.{kind}", (_MONITOR.format(f"scored.{kind}"),)) for kind in ("csv", "parquet")),
    Target("monitor.safetensors", (f"monitor {VALID}/scored.csv --state monitor.safetensors --out out.html",)),
    Target("classes.txt", (f"report {VALID}/scores.csv --classes classes.txt --out out.html",)),
    *(Target(f"results/{file}", (*_RESULTS, _REPORT.format("results")), ("results",)) for file in ("cells.csv",)),
    *(Target(f"results/{file}", _RESULTS, ("results",)) for file in ("runs.jsonl", "settings.jsonl")),
    Target(
        "results/scores/paper/resnet-34__cifar10__svhn__baseline.safetensors",
        (_REPORT.format("results"),),
        ("results",),
    ),
    *(
        Target(f"pictures/a.{kind}", (f"{_IMAGES} --images pictures --out out.csv",), ("pictures", "made_here.py"))
        for kind in ("png", "jpg", "gif", "bmp", "tif", "webp", "ppm")
    ),
    Target("pictures.parquet", (f"{_IMAGES} --images pictures.parquet --out out.csv",), ("made_here.py",)),
    Target(
        "model.safetensors",
        (_IMAGES.replace(f"{VALID}/model", "model") + f" --images {VALID}/pictures --out out.csv",),
        ("made_here.py",),
        ("guarded.safetensors",),
    ),
)


def make_files(folder: Path) -> None:
    """Write every file that a target names into a new folder."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(CLASSES, FEATURES)), rng.normal(size=CLASSES)
    rows = rng.normal(size=(30, FEATURES)).astype(np.float32)
    early = rng.normal(size=(30, 5)).astype(np.float32)
    ids = [f"row {number}" for number in range(30)]
    np.save(folder / "rows.npy", rows)
    np.savez(folder / "rows.npz", embedding=rows, id=np.arange(30))
    np.savez_compressed(folder / "layers.npz", **{"embedding": rows, "features.early": early})
    names = [f"f{number}" for number in range(FEATURES)]
    lines = [",".join(["id", *names]), *(",".join([one, *map(str, row)]) for one, row in zip(ids, rows, strict=True))]
    (folder / "rows.csv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    pq.write_table(pa.table({"id": ids, "embedding": rows.tolist()}), folder / "rows.parquet", row_group_size=11)
    pq.write_table(pa.table(dict(zip(names, rows.T, strict=True))), folder / "wide.parquet")
    pq.write_table(pa.table({"embedding": rows.tolist(), "features.early": early.tolist()}), folder / "layers.parquet")
    np.savez(folder / "head.npz", weight=weight, bias=bias)
    save_file({"weight": weight, "bias": bias}, folder / "head.safetensors")
    detector = Detector(weight, bias).fit(rng.normal(size=(200, FEATURES)))
    threshold = detector.calibrate(rng.normal(size=(60, FEATURES)))
    detector.save(folder / "detector.safetensors")
    _write_parts(folder, detector)
    _write_scores(folder, ids, rng, threshold)
    _write_results(folder / "results", rng)
    _write_pictures(folder, rng)


def _write_parts(folder: Path, detector: Detector) -> None:
    """Write what a run leaves that is killed before its last step, and what it would have written."""
    samples = within_budget(open_embeddings(folder / "rows.npy"), CLASSES)
    store, ranges = PartStore(folder / PARTS, "npz"), local.local_ranges(samples)
    with store.lock():
        local.begin(store, samples, detector, ranges, by_layer=False, restart=False)
        local.score_rows(samples, ranges, detector, store)
    for kind in ("csv", "parquet"):
        local.score(samples, detector, folder / f"scored.{kind}", progress=False)
    Monitor(detector, alpha=0.01).save(folder / "monitor.safetensors")


def _write_scores(folder: Path, ids: list[str], rng: np.random.Generator, threshold: Threshold) -> None:
    table = {
        "id": ids,
        "prediction": rng.integers(0, CLASSES, 30).tolist(),
        "probability": rng.random(30).tolist(),
        "regret": rng.random(30).tolist(),
    }
    table["is_ood"] = threshold.is_ood(table["regret"]).tolist()
    pq.write_table(pa.table(table), folder / "scores.parquet")
    lines = [
        ",".join(table),
        *(",".join(map(str, row)).replace("True", "true") for row in zip(*table.values(), strict=True)),
    ]
    (folder / "scores.csv").write_text("\n".join([*lines, ""]).replace("False", "false"), encoding="utf-8")
    (folder / "classes.txt").write_text("cat\ndog\nship\n", encoding="utf-8")


def _write_results(folder: Path, rng: np.random.Generator) -> None:
    inside, outside = rng.normal(size=30), rng.normal(2, size=30)
    scores = Scores(evaluate(inside, outside), evaluate(inside, outside))
    for method in ("baseline", "odin"):
        names = {"model": "resnet-34", "ind": "cifar10", "ood": "svhn", "method": method}
        run = Run(command="pnml bench", date="2026-01-01T00:00:00", device="cpu", versions={"numpy": "2"})
        result = Result(
            **names,
            scores=scores,
            counts={"train": 30},
            rank=8,
            settings={"limit": 30, "notes": {"ind": "some"}},
            run=run,
        )
        ResultStore(folder).append(result)
        pictures = {0: np.zeros((4, 4, 3), np.uint8)}
        parts = [
            ScoredSet(name=name, role=role, regret=np.abs(values), baseline=values, images=pictures)
            for name, role, values in (("CIFAR-10", "in", inside), ("SVHN", "out", outside))
        ]
        save_scores(SavedScores(*parts, np.ones(4)), saved_scores_path(result, folder))


def _write_pictures(folder: Path, rng: np.random.Generator) -> None:
    import torch
    from safetensors.torch import save_file as save_tensors

    from pnml import guard

    (folder / "made_here.py").write_text(MODULE, encoding="utf-8")
    made: dict[str, object] = {}
    exec(MODULE, made)  # noqa: S102 - the text above
    torch.manual_seed(0)
    model = made["create"]()  # type: ignore[operator]
    save_tensors(model.state_dict(), folder / "model.safetensors")
    guarded = guard(model, layers="last").fit([torch.rand(60, 3, SIDE, SIDE)])
    guarded.save(folder / "guarded.safetensors")
    (folder / "pictures").mkdir()
    pixels = rng.integers(0, 256, (8, SIDE, SIDE, 3), dtype=np.uint8)
    for picture, kind in zip(pixels, ("png", "jpg", "gif", "bmp", "tif", "webp", "ppm", "PNG"), strict=True):
        Image.fromarray(picture).save(folder / "pictures" / f"{'b' if kind == 'PNG' else 'a'}.{kind}")
    encoded = [file.read_bytes() for file in sorted((folder / "pictures").iterdir())]
    pq.write_table(pa.table({"image": encoded, "id": list(range(8))}), folder / "pictures.parquet")
