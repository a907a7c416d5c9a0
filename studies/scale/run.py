"""Fitting and scoring embeddings that do not fit into memory: throughput and peak memory, in one process and on Ray.

Embeddings are drawn at random and written as a folder of parquet files, file by file, so that making them takes no
memory either. Then the commands ``pnml fit`` and ``pnml score`` are run as a user runs them, with ``--engine plain``
and with ``--engine ray`` on the same cores, and what comes of it is compared: the sums, and the scores bit for bit.

    python -m studies.scale.run                    # 10 million rows of 512: 20 GB, with --folder on a disk that has 25
    python -m studies.scale.run --rows 200000      # a quick look
    python -m studies.scale.run --fill docs/scale.md    # put the record into the page

Peak memory of the plain engine is the kernel's own record of the process (VmHWM). For Ray it is the sum over all
processes that were started, shared memory counted once, sampled a few times a second. The seconds include starting
Python, and starting and stopping Ray. What was written or read last may come from memory instead of the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from pnml import Detector
from pnml.backend.files import write_text
from pnml.backend.progress import track
from pnml_bench.environment import environment, git_state

GROUP_ROWS = 32_768
LIMIT = 2e9
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def make_embeddings(folder: Path, rows: int, features: int, file_rows: int) -> None:
    rng = np.random.default_rng(0)
    kind = pa.list_(pa.float32(), features)
    schema = pa.schema([("embedding", kind)])
    starts = range(0, rows, file_rows)
    for number, start in enumerate(track(starts, "making embeddings")):
        path = folder / f"part-{number:05d}.parquet"
        with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
            for first in range(start, min(start + file_rows, rows), GROUP_ROWS):
                count = min(GROUP_ROWS, min(start + file_rows, rows) - first)
                values = rng.standard_normal(count * features, dtype=np.float32)
                writer.write_table(pa.table([pa.FixedSizeListArray.from_arrays(values, type=kind)], schema=schema))


def run(words: list[str], threads: int) -> dict[str, Any]:
    """Run a command; give its seconds and the most memory that it, and it and all it started, held."""
    command = [sys.executable, "-m", "pnml", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    started = time.perf_counter()
    alone = together = 0
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:  # noqa: S603 - our own
        while process.poll() is None:
            with suppress(psutil.Error, OSError):  # something ended while we looked
                alone = max(alone, most_held_by(process.pid))
                family = psutil.Process(process.pid)
                held = [one.memory_full_info().pss for one in (family, *family.children(recursive=True))]
                together = max(together, sum(held))
            time.sleep(0.1)
    seconds = time.perf_counter() - started
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} failed")
    return {"seconds": round(seconds, 2), "peak_rss": alone, "peak_of_all_processes": together}


def most_held_by(pid: int) -> int:
    """The largest resident memory a process has had so far, in bytes; 0 of one that has ended."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def measure(engine: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    rows, features, cpus = options.rows, options.features, options.cpus
    detector = folder / f"{engine}.safetensors"
    spread = ["--engine", "ray", "--cpus", str(cpus)] if engine == "ray" else []
    threads = 1 if engine == "ray" else cpus
    inputs = ["--embeddings", str(folder / "rows")]
    fit = run(["fit", *inputs, "--head", str(folder / "head.npz"), "--out", str(detector), *spread], threads)
    scored = str(scores_of(engine, folder))
    score = run(["score", str(folder / "plain.safetensors"), *inputs, "--out", scored, *spread], threads)
    read = rows * features * 4
    for part in (fit, score):
        part["rows_per_second"] = round(rows / part["seconds"])
        part["gigabytes_per_second"] = round(read / part["seconds"] / 1e9, 3)
    return {"fit": fit, "score": score}


def scores_of(engine: str, folder: Path) -> Path:
    return folder / ("scores" if engine == "ray" else "scores.parquet")


def compare(folder: Path) -> dict[str, Any]:
    """Print how far the engines agree."""
    plain, spread = (Detector.load(folder / f"{engine}.safetensors").correlation.matrix for engine in ("plain", "ray"))
    with pq.ParquetFile(scores_of("plain", folder)) as file:
        one = np.concatenate([batch.column("regret").to_numpy() for batch in file.iter_batches(columns=["regret"])])
    shards = sorted(scores_of("ray", folder).glob("rows-*.parquet"))
    other = np.concatenate([pq.read_table(path, columns=["regret"])["regret"].to_numpy() for path in shards])
    return {
        "largest_difference_of_sums_relative": float(np.abs(plain - spread).max() / np.abs(plain).max()),
        "rows": [len(one), len(other)],
        "scores_equal_bit_for_bit": bool(len(one) == len(other) and (one == other).all()),
    }


def machine() -> dict[str, Any]:
    return {
        "cpu": environment()["cpu"],
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_before": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Throughput and memory of pnml fit and pnml score over parquet.")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--file-rows", type=int, default=8 * GROUP_ROWS, help="rows of one parquet file")
    parser.add_argument("--cpus", type=int, default=os.cpu_count(), help="threads of plain, cores of Ray")
    parser.add_argument("--engines", default="plain,ray", help="plain, or plain,ray")
    parser.add_argument("--folder", type=Path, help="where the embeddings are made for the while")
    parser.add_argument("--out", type=Path, default=Path("studies/scale/record.json"))
    parser.add_argument(
        "--fill", type=Path, metavar="PAGE", help="put the record --out into this page; measure nothing"
    )
    options = parser.parse_args()
    if options.fill:
        fill(options.fill, json.loads(options.out.read_text(encoding="utf-8")))
        return

    where = machine()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        (folder / "rows").mkdir()
        make_embeddings(folder / "rows", options.rows, options.features, options.file_rows)
        rng = np.random.default_rng(1)
        np.savez(folder / "head.npz", weight=rng.normal(size=(options.classes, options.features)))
        engines = options.engines.split(",")
        measured = {engine: measure(engine, folder, options) for engine in engines}
        agreement = compare(folder) if "ray" in engines else None
    commit, dirty = git_state()
    record = {
        "what": f"pnml fit and pnml score over {options.rows:,} x {options.features} float32 embeddings in parquet, "
        f"{options.classes} classes, {options.cpus} cores",
        "command": f"python -m studies.scale.run {' '.join(sys.argv[1:])}".strip(),
        "machine": where,
        "python": platform.python_version(),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "commit": commit,
        "dirty": dirty,
        "input_bytes": options.rows * options.features * 4,
        "engines": measured,
        "agreement": agreement,
        "plain_stays_under_2_gigabytes": all(part["peak_rss"] < LIMIT for part in measured["plain"].values()),
    }
    write_text(options.out, json.dumps(record, indent=2) + "\n")
    print("\n".join(as_markdown(record)))
    print(f"wrote {options.out}")


def as_markdown(record: dict[str, Any]) -> list[str]:
    """Put a record into words and a table."""
    where = record["machine"]
    lines = [
        f"{record['what']}; {where['cpu']}, {where['cores']} cores, {where['memory_bytes'] / 2**30:.0f} GiB of memory,",
        f"{record['date']}, commit {(record['commit'] or 'unknown')[:12]}, load {where['load_before']:.1f} before.",
        "",
        "| command | engine | seconds | rows/s | GB/s read | peak memory |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for engine, parts in record["engines"].items():
        for command, part in parts.items():
            memory = part["peak_rss"] if engine == "plain" else part["peak_of_all_processes"]
            lines.append(
                f"| `pnml {command}` | {engine} | {part['seconds']:,.0f} | {part['rows_per_second']:,} "
                f"| {part['gigabytes_per_second']:.2f} | {memory / 1e9:.2f} GB |"
            )
    if found := record["agreement"]:
        equal = "equal bit for bit" if found["scores_equal_bit_for_bit"] else "not all equal"
        off = found["largest_difference_of_sums_relative"]
        lines += ["", f"Between the engines the sums differ by {off:.1e} of the largest; the scores are {equal}."]
    return lines


def fill(page: Path, record: dict[str, Any]) -> None:
    """Put a record between the marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(f"{BEGIN}\n")
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"{page} has no lines {BEGIN} and {END}")
    write_text(page, "\n".join([before + BEGIN, *as_markdown(record), END + after]))


if __name__ == "__main__":
    main()
