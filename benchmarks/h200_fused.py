"""The kernels that do everything, beside one product with a compiled epilogue: time, ceilings and differences.

Example: PYTHONPATH=src python benchmarks/h200_fused.py --embeddings embeddings --out fused.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from h200_clock import DTYPES, Bench, Scorer, products_in
from h200_real import real
from h200_speed import block_flops
from speed_data import embeddings, head
from torch import Tensor

from pnml import Detector, _fused_kernel, learner
from pnml.fused import Fused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def ceiling(bench: Bench, kind: str) -> float:
    """Measure the TFLOP/s of a large square product."""
    size = 8192 if bench.cuda else 256
    left, right = (torch.randn(size, size, device=bench.device).to(DTYPES[kind]) for _ in range(2))
    with products_in(kind):
        return 2e-12 * size**3 / bench.seconds(lambda: left @ right, repeats=20)["median"]


@contextlib.contextmanager
def without_hopper() -> Iterator[None]:
    """Let the kernel be the one for any GPU."""
    before, Fused.hopper = Fused.hopper, False
    try:
        yield
    finally:
        Fused.hopper = before


def epilogue(products: Tensor, x: Tensor, bias: Tensor) -> Tensor:
    """Give the regrets from the products of embeddings with weight and whitening side by side."""
    scale = torch.rsqrt((x * x).sum(dim=1, keepdim=True))
    classes = len(bias)
    h = (products[:, classes:] ** 2).sum(dim=1, keepdim=True) * scale**2
    found: Tensor = learner.regrets(learner.log_softmax(products[:, :classes] * scale + bias), h / (1 + h))
    return found


def side_by_side(scorer: Scorer, chunk: int) -> Callable[[Tensor], Tensor]:
    """Return scoring by one product a chunk."""
    matrix = torch.cat([scorer.head[0], scorer.basis[0]], dim=1)
    finish = torch.compile(epilogue, dynamic=False)

    def score(x: Tensor) -> Tensor:
        with products_in("tf32"):
            return torch.cat([finish(part @ matrix, part, scorer.head[1]) for part in torch.split(x, chunk)])

    return score


def compare(bench: Bench, x: Tensor, detector: Detector, noisy: Detector) -> dict[str, Any]:
    """Time the ways of scoring in float16 and TF32 and hold each against float64."""
    scorer = Scorer(detector, "tf32", x)
    exact, exact_noisy = (one.score(x[: 1 << 17].double()) for one in (detector, noisy))
    flops = len(x) * block_flops(x.shape[1], detector.n_classes)

    def plain(x: Tensor) -> Tensor:
        with without_hopper():
            return detector.score(x, precision="float16")  # type: ignore[no-any-return]

    noise = f"float16, {100 * noisy.label_noise:g}% label noise"
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "float16": lambda x: detector.score(x, precision="float16"),
        noise: lambda x: noisy.score(x, precision="float16"),
        "float16, without Hopper's instructions": plain,
        "TF32, eager": scorer,
        **{f"TF32, side by side, chunks of {rows}": side_by_side(scorer, rows) for rows in (1 << 16, 1 << 18, len(x))},
    }
    ceilings = {kind: ceiling(bench, kind) for kind in ("float16", "tf32")}
    found: dict[str, Any] = {"rows": len(x), "ceilings_tflops": ceilings}
    for name, way in ways.items():
        try:
            begin = time.perf_counter()
            share = (way(x)[: len(exact)].double() / (exact_noisy if name == noise else exact) - 1).abs()
            first = time.perf_counter() - begin
            taken = bench.seconds(lambda way=way: way(x), repeats=20)  # type: ignore[misc]
            found[name] = {
                **taken,
                "first_call_seconds": first,
                "largest_relative_difference": float(share.max()),
                "median_relative_difference": float(share.median()),
                "tflops": 1e-12 * flops / taken["median"],
            }
        except Exception:  # noqa: BLE001 - the others go on
            found[name] = {"error": traceback.format_exc()[-3000:]}
        print(name, json.dumps(found[name], indent=1).replace("\\n", "\n"), flush=True)
    found["hopper"] = Fused.hopper  # whether its kernel could be compiled
    return found


def timings() -> dict[str, float]:
    """Give the milliseconds of each way of cutting the kernel for any GPU into blocks that was tried."""
    tuner = _fused_kernel._kernel()  # noqa: SLF001 - no one else asks
    tried = getattr(tuner, "configs_timings", None) or {}
    return {str(config): taken[0] if isinstance(taken, list) else taken for config, taken in tried.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu to try the program out")
    parser.add_argument("--rows", type=int, default=1_000_000, help="embeddings to score")
    parser.add_argument("--embeddings", type=Path, help="folder of <network>.safetensors")
    parser.add_argument("--out", type=Path, required=True, help="where the JSON goes")
    options = parser.parse_args()
    bench = Bench(options.device, options.rows)
    x = embeddings(bench.rows, 512, seed=1, device=bench.device)
    train = embeddings(50_000 if bench.cuda else 2000, 512, seed=0, device=bench.device)
    last_layer = head(512, 100, device=bench.device)
    detector, noisy = Detector(*last_layer, embedding_scale="paper"), Detector(*last_layer)
    found = {"score": compare(bench, x, detector.fit(train), noisy.fit(train)), "milliseconds by config": timings()}
    print(json.dumps(found["milliseconds by config"], indent=1), flush=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.embeddings:
        found["real"] = real(bench, options.embeddings)
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
