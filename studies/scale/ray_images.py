"""Images through GPU actors of Ray: the scores of one process, also when an actor is killed on the way.

CIFAR-10 images go into a parquet file as PNG. Then ``pnml fit`` and ``pnml score`` are run as a user runs them, with
the demo's ResNet-20, in one process and with ``--engine ray``, which puts the model on one actor per GPU. The score on
Ray is run a second time, and an actor is killed with SIGKILL in the middle of it.

What to expect. Both engines show the model the same batches, and without its benchmark mode cuDNN chooses kernels by
the shape alone, so all scores should be equal bit for bit. If another process chooses otherwise, embeddings differ by
rounding, of float32 or of the TF32 that PyTorch allows convolutions, and regrets by that times the condition of the
training set's directions: then look at ``largest_relative``. Sums are added in another order and agree to about 1e-15.
The seconds are of whole commands: starting Python, PyTorch and Ray takes most of them.

    PYTHONPATH=src python -m studies.scale.ray_images --images cifar10.parquet --out ray.json   # made if absent
    PYTHONPATH=src python -m studies.scale.ray_images --device cpu --count 600 --batch-size 2 --cpus 2 --out ray.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor, nn

from pnml import Detector
from pnml.demo import assets
from pnml_bench import data, zoo

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTES, KILL = "H200_RAY_NOTES", "H200_RAY_KILL"
"""Environment variables: the folder where workers leave notes, and set if one of them is to be killed."""


class Noting(nn.Module):
    """A network that notes where it runs; in one worker it stops in the middle, if so wished, and waits for its end."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.made_in = self.runs_in = os.getpid()
        self.calls = 0

    def forward(self, images: Tensor) -> Any:
        if os.getpid() != self.runs_in:  # it was sent to a worker
            self.runs_in, self.calls = os.getpid(), 0
        self.calls += 1
        folder = Path(os.environ[NOTES])
        if self.calls == 1:
            self.leave_note(folder, images.device)
        victim = folder / "victim"
        if KILL in os.environ and self.runs_in != self.made_in and self.calls == 5 and not victim.exists():
            write_whole(victim, str(os.getpid()))
            time.sleep(600)
        return self.network(images)

    def leave_note(self, folder: Path, device: torch.device) -> None:
        import ray

        note = {
            "worker": self.runs_in != self.made_in,
            "device": str(device),
            "name": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
            "gpus_given_by_ray": ray.get_gpu_ids() if ray.is_initialized() else None,
        }
        write_whole(folder / f"{os.getpid()}.json", json.dumps(note))


def create() -> nn.Module:
    """What ``--model ray_images:create`` calls."""
    return Noting(zoo.load(assets.verified_path(assets.WEIGHTS)))


def write_whole(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.rename(path)


def make_images(path: Path, count: int) -> None:
    encoded = []
    for pixels in np.asarray(data.load("cifar10", split="train", limit=count).images):
        file = BytesIO()
        Image.fromarray(pixels).save(file, "png")
        encoded.append(file.getvalue())
    ids = [f"train-{number}" for number in range(len(encoded))]
    pq.write_table(pa.table({"image": encoded, "id": ids}), path, row_group_size=500, compression="none")


def run(words: list[str], notes: Path, options: argparse.Namespace, *, kill: bool = False) -> dict[str, Any]:
    """Run ``pnml``; give its seconds and the notes of its workers."""
    notes.mkdir()
    here = str(Path(__file__).parent)
    environment = {
        **os.environ,
        **({KILL: "1"} if kill else {}),
        **({"CUDA_VISIBLE_DEVICES": ""} if options.device == "cpu" else {}),
        NOTES: str(notes),
        "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]),
    }
    mean, std = (",".join(map(str, values)) for values in zoo.network.CIFAR)
    how = ["--model", "ray_images:create", "--mean", mean, "--std", std, "--batch-size", str(options.batch_size)]
    command = [sys.executable, "-m", "pnml", *words, "--images", str(options.images), *how]
    started = time.perf_counter()
    with killer(notes / "victim") if kill else nobody() as killed:
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)  # noqa: S603 - our own
    seconds = time.perf_counter() - started
    found = [json.loads(path.read_text(encoding="utf-8")) for path in notes.glob("*.json")]
    workers = [note for note in found if note.pop("worker")]
    return {"seconds": round(seconds, 2), "actors": workers, "killed": len(killed)}


@contextmanager
def nobody() -> Iterator[list[int]]:
    yield []


@contextmanager
def killer(victim: Path) -> Iterator[list[int]]:
    """Kill the process whose number appears in a file."""
    killed: list[int] = []

    def kill() -> None:
        while not victim.exists():
            time.sleep(0.01)
        killed.append(int(victim.read_text(encoding="utf-8")))
        os.kill(killed[0], signal.SIGKILL)

    Thread(target=kill, daemon=True).start()
    yield killed


def difference(one: pa.Table, other: pa.Table) -> dict[str, Any]:
    """Return how far a table of scores is from that of one process."""
    a, b = (table["regret"].to_numpy() for table in (one, other))
    if one["id"] != other["id"]:
        return {"rows": len(b), "every_row_once_and_in_order": False}
    return {
        "rows": len(b),
        "every_row_once_and_in_order": True,
        "equal_bit_for_bit": bool(one.equals(other)),
        "largest_absolute": float(np.abs(a - b).max()),
        "largest_relative": float((np.abs(a - b) / a).max()),
        "predictions_that_differ": int((one["prediction"].to_numpy() != other["prediction"].to_numpy()).sum()),
    }


def table_at(folder: Path) -> pa.Table:
    shards = sorted(folder.glob("rows-*.parquet"))
    return pa.concat_tables([pq.read_table(path).replace_schema_metadata() for path in shards])


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    plain, spread = folder / "plain.safetensors", folder / "ray.safetensors"
    on_ray = ["--engine", "ray", *(["--cpus", str(options.cpus)] if options.cpus else [])]
    score = ["score", str(plain), "--out"]
    runs = {
        "fit, one process": run(["fit", "--out", str(plain)], folder / "1", options),
        "fit, ray": run(["fit", "--out", str(spread), *on_ray], folder / "2", options),
        "score, one process": run([*score, str(folder / "plain.parquet")], folder / "3", options),
        "score, ray": run([*score, str(folder / "whole"), *on_ray], folder / "4", options),
        "score, ray, an actor killed": run([*score, str(folder / "killed"), *on_ray], folder / "5", options, kill=True),
    }
    sums = [Detector.load(path).correlation.matrix for path in (plain, spread)]
    scores = pq.read_table(folder / "plain.parquet").replace_schema_metadata()
    return {
        "runs": runs,
        "actors_ran_on": sorted({note["device"] for found in runs.values() for note in found["actors"]}),
        "sums_largest_relative_difference": float(np.abs(sums[0] - sums[1]).max() / np.abs(sums[0]).max()),
        "scores, ray": difference(scores, table_at(folder / "whole")),
        "scores, ray, an actor killed": difference(scores, table_at(folder / "killed")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--images", type=Path, help="a parquet file of CIFAR-10 images; made from PNML_DATA if absent")
    parser.add_argument("--count", type=int, default=20_000, help="how many images to make")
    parser.add_argument("--batch-size", type=int, default=32, help="a piece has 64 batches")
    parser.add_argument("--cpus", type=int, help="cores of Ray; all when left out")
    parser.add_argument("--make", action="store_true", help="make the file --images and measure nothing")
    parser.add_argument("--out", type=Path, default=Path("ray.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        options.images = (options.images or Path(name) / "images.parquet").absolute()
        if not options.images.exists():
            make_images(options.images, options.count)
        if options.make:
            return
        if options.device == "cuda" and not torch.cuda.is_available():
            raise SystemExit("no GPU is here: try --device cpu")
        record = {
            "what": f"pnml fit and score --images, ResNet-20, {pq.read_metadata(options.images).num_rows:,} images",
            "device": torch.cuda.get_device_name() if options.device == "cuda" else platform.processor(),
            "gpus": torch.cuda.device_count() if options.device == "cuda" else 0,
            "cores": os.cpu_count(),
            "batch_size": options.batch_size,
            "versions": {"python": platform.python_version(), "torch": torch.__version__}
            | {package: version(package) for package in ("ray", "pyarrow", "numpy")},
            **measure(Path(name), options),
        }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
