"""Speed on one GPU: what fraction of the measured matrix-product ceiling fitting and scoring reach, and how exactly.

Every section stands alone: one that fails leaves its error in the JSON and the others go on.

Example: PYTHONPATH=src python benchmarks/h200_speed.py --embeddings embeddings --out speed.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import traceback
import warnings
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from h200_clock import DTYPES, Bench, Scorer, products_in
from h200_real import real
from speed_data import embeddings, head
from speed_oracle import exact_regret
from torch import Tensor

from pnml import Correlation, Detector, subspace
from pnml.backend.products import sum_of_products

if TYPE_CHECKING:
    from collections.abc import Callable

Matrix = np.ndarray[Any, Any]


def ceilings(bench: Bench) -> dict[str, Any]:
    """Measure matrix products of each precision, square and in the shapes that scoring and fitting have."""
    n, large = min(bench.rows, 131_072), 8192 if bench.cuda else 256
    shapes = {
        "square": (large, large, large),
        "score": (n, 512, 612),
        "score block of 64": (n, 512, 64),
        "score block of 128": (n, 512, 128),
        "fit 512": (512, n, 512),
        "fit 2048": (2048, n, 2048),
    }
    found: dict[str, Any] = {}
    for kind, dtype in DTYPES.items():
        if dtype.itemsize == 2 and not bench.cuda:
            continue
        with products_in(kind):
            for name, (a, b, c) in shapes.items():
                left = torch.randn(b, a, device=bench.device).to(dtype).T if name.startswith("fit") else None
                left = torch.randn(a, b, device=bench.device).to(dtype) if left is None else left
                right = left.T if name.startswith("fit") else torch.randn(b, c, device=bench.device).to(dtype)
                taken = bench.seconds(lambda left=left, right=right: left @ right, repeats=5)  # type: ignore[misc]
                found.setdefault(kind, {})[name] = {"tflops": 2e-12 * a * b * c / taken["median"], **taken}
        bench.ceilings[kind] = max(shape["tflops"] for shape in found[kind].values())
    source = torch.empty((1 << 31) if bench.cuda else (1 << 20), dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    copied = bench.seconds(lambda: target.copy_(source), repeats=5)
    return {**found, "copy": {"bytes_per_second": 2 * source.numel() / copied["median"], **copied}}


def fits(bench: Bench) -> dict[str, Any]:
    """Time the statistic, and its decomposition apart, which is once and on the host."""
    found = {}
    for count, width in ((50_000, 512), (1_000_000, 512), (50_000, 2048), (1_000_000, 2048)):
        count = min(count, bench.rows)  # noqa: PLW2901 - a smaller trial
        x = embeddings(count, width, seed=0, device=bench.device)
        with bench.no_waiting():
            sum_of_products(x, unit_norm=True)
        taken = bench.seconds(lambda x=x: Correlation(unit_norm=True).update(x), repeats=5)  # type: ignore[misc]
        flops = 2.0 * count * width**2
        begin = time.perf_counter()
        subspace.Subspace.fit(Correlation(unit_norm=True).update(x))
        found[f"{count} x {width}"] = {
            **taken,
            "tflops": 1e-12 * flops / taken["median"],
            "share_of_ceiling": 1e-12 * flops / taken["median"] / bench.ceilings["float64"],
            "fit_and_decomposition_seconds": time.perf_counter() - begin,
            "peak_bytes": bench.peak(lambda x=x: Correlation(unit_norm=True).update(x)),  # type: ignore[misc]
            "waits_for_the_device": "once, at the end",
        }
    return found


def block_flops(width: int, classes: int) -> float:
    """Count the floating-point operations of the products of one row: head, and triangle in blocks."""
    step = subspace.block_width(width)
    blocks = sum(2.0 * (width - start) * min(step, width - start) for start in range(0, width, step))
    return 2.0 * width * classes + blocks


def scores(bench: Bench) -> dict[str, Any]:
    """Time scoring in each precision, eager and compiled, with several sizes of chunks and blocks."""
    width, classes = 512, 100
    x = embeddings(bench.rows, width, seed=1, device=bench.device)
    train = embeddings(min(bench.rows, 50_000), width, seed=0, device=bench.device)
    detector = Detector(*head(width, classes, device=bench.device), embedding_scale="paper").fit(train)
    exact = oracle(detector, x[:128])
    chunk_bytes, block_width = _rows.REMOTE_CHUNK_BYTES, subspace.block_width
    found: dict[str, Any] = {"rows": bench.rows, "width": width, "classes": classes}
    trials = [(kind, False, chunk_bytes, 4) for kind in ("float64", "float32", "tf32")]
    trials += [(kind, False, chunk_bytes, blocks) for kind in ("float64", "float32") for blocks in (8, 2, 1)]
    trials += [(kind, False, size, 4) for kind in ("float64", "float32") for size in (1 << 27, 1 << 32)]
    trials += [("float64", True, chunk_bytes, 4), ("float32", True, chunk_bytes, 4)]
    for kind, fused, size, blocks in trials:
        name = f"{kind}{', compiled' if fused else ''}, chunks of {size >> 20} MiB, {blocks} blocks"
        _rows.REMOTE_CHUNK_BYTES = size
        if blocks != 4:  # which is what the package does
            subspace.block_width = lambda n, blocks=blocks: -(-n // blocks)  # type: ignore[misc]
        try:
            found[name] = one_trial(bench, Scorer(detector, kind, x), x, exact, fused=fused)
        except Exception:  # noqa: BLE001 - the others go on
            found[name] = {"error": traceback.format_exc()[-2000:]}
        finally:
            _rows.REMOTE_CHUNK_BYTES, subspace.block_width = chunk_bytes, block_width
    for precision, fused in itertools.product(("float64", "float32"), (False, True)):
        options: dict[str, Any] = {"precision": precision, "compiled": fused}
        whole = bench.seconds(lambda options=options: detector.score(x, **options))  # type: ignore[misc]
        found[f"Detector.score, {options}"] = {**whole, "rows_per_second": bench.rows / whole["median"]}
    return found


def kernels(bench: Bench) -> dict[str, Any]:
    """List where the time of eager scoring goes."""
    x = embeddings(min(bench.rows, 131_072), 512, seed=1, device=bench.device)
    detector = Detector(*head(512, 100, device=bench.device), embedding_scale="paper").fit(x)
    found = {}
    for kind in ("float64", "float32"):
        scorer = Scorer(detector, kind, x)
        scorer(x)
        with torch.profiler.profile() as profile:
            scorer(x)
        rows = profile.key_averages()
        times = {row.key[:80]: getattr(row, "self_device_time_total", 0) or row.self_cpu_time_total for row in rows}
        found[kind] = dict(sorted(times.items(), key=lambda item: -item[1])[:16])
    return found


def one_trial(bench: Bench, scorer: Scorer, x: Tensor, exact: Matrix, *, fused: bool) -> dict[str, Any]:
    begin = time.perf_counter()
    scorer(x, fused=fused)
    first = time.perf_counter() - begin
    with bench.no_waiting():
        gamma = scorer(x, fused=fused)
    taken = bench.seconds(lambda: scorer(x, fused=fused))
    flops = len(x) * block_flops(x.shape[1], scorer.detector.n_classes)
    tflops = 1e-12 * flops / taken["median"]
    return {
        **taken,
        "first_call_seconds": first,
        "rows_per_second": len(x) / taken["median"],
        "tflops": tflops,
        "share_of_ceiling": tflops / bench.ceilings[scorer.kind],
        "peak_bytes": bench.peak(lambda: scorer(x, fused=fused)),
        "largest_relative_error": float(np.abs(gamma[: len(exact)].double().cpu().numpy() / exact - 1).max()),
        "waits_for_the_device": "never",
    }


def oracle(detector: Detector, x: Tensor) -> Matrix:
    found = exact_regret(detector.weight, detector.bias, detector.correlation.matrix, x.cpu().numpy())
    return found.astype(np.float64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu to try the program out")
    parser.add_argument("--rows", type=int, default=1_000_000, help="embeddings to score")
    parser.add_argument("--embeddings", type=Path, help="folder of <network>.safetensors")
    parser.add_argument("--out", type=Path, required=True, help="where the JSON goes")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="torch._dynamo")
    bench = Bench(options.device, options.rows)
    machine = torch.cuda.get_device_name(options.device) if bench.cuda else "cpu"
    bench.found = {"machine": machine, "torch": torch.__version__, "date": datetime.now(timezone.utc).isoformat()}
    sections: dict[str, Callable[[], Any]] = {
        "ceilings": lambda: ceilings(bench),
        "fit": lambda: fits(bench),
        "score": lambda: scores(bench),
        "microseconds by kernel": lambda: kernels(bench),
        **({"real": lambda: real(bench, options.embeddings)} if options.embeddings else {}),
    }
    for name, section in sections.items():
        begin = time.perf_counter()
        try:
            bench.found[name] = section()
        except Exception:  # noqa: BLE001 - the other sections go on
            bench.found[name] = {"error": traceback.format_exc()[-4000:]}
        if bench.cuda:
            torch.cuda.empty_cache()
        print(f"{name}: {time.perf_counter() - begin:.1f} s", flush=True)
        options.out.write_text(json.dumps(bench.found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
