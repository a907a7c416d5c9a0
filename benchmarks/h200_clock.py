"""The device, its clock, and scoring in one precision on it."""

from __future__ import annotations

import contextlib
import statistics
import time
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pnml.backend.rows import chunks
from pnml.core.quick import Quick, quick_regret
from pnml.core.scoring import compiled, regret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pnml import Detector

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "tf32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class Bench:
    """The device, how long things take on it, and what was found so far."""

    def __init__(self, device: str, rows: int) -> None:
        self.device, self.rows = device, rows
        self.cuda = device.startswith("cuda")
        self.found: dict[str, Any] = {}
        self.ceilings: dict[str, float] = {}

    def seconds(self, work: Callable[[], object], *, repeats: int = 7, warm: int = 2) -> dict[str, float]:
        """Give median and quartiles of the seconds one call takes, by the device's own clock."""
        for _ in range(warm):
            work()
        taken = []
        for _ in range(repeats):
            if self.cuda:
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
                start.record()
                work()
                end.record()
                torch.cuda.synchronize()
                taken.append(start.elapsed_time(end) / 1000)
            else:
                begin = time.process_time()
                work()
                taken.append(time.process_time() - begin)
        low, middle, high = statistics.quantiles(taken, n=4)
        return {"median": middle, "lower": low, "upper": high}

    def peak(self, work: Callable[[], object]) -> float | None:
        """Give the bytes taken on the device beyond those held before."""
        if not self.cuda:
            return None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        torch.cuda.synchronize()
        return float(torch.cuda.max_memory_allocated() - before)

    @contextlib.contextmanager
    def no_waiting(self) -> Iterator[None]:
        """Let any synchronisation of host and device raise."""
        if not self.cuda:
            yield
            return
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


@contextlib.contextmanager
def products_in(kind: str) -> Iterator[None]:
    """Let float32 matrices be multiplied in TF32 or not."""
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


class Scorer:
    """A fitted detector's scoring function in one precision, chunk by chunk as the detector runs it."""

    def __init__(self, detector: Detector, kind: str, x: Tensor) -> None:
        self.detector, self.kind = detector, kind
        dtype = DTYPES[kind]
        self.options = {"embedding_scale": detector.embedding_scale, "label_noise": detector.label_noise}
        quick = Quick(*detector.scaled_head, detector.subspace, detector.embedding_scale)
        weight, bias, whitening, null_space, self.reach = quick.constants.to(x, dtype)
        self.head, self.basis = (weight, bias), (whitening, null_space)
        self.limits = detector.subspace.outside_limits(float(torch.finfo(x.dtype).eps))

    def __call__(self, x: Tensor, *, fused: bool = False) -> Tensor:
        """Give the regrets of embeddings (n, M), of "float32" with the bounds of their errors on the way."""
        function: Callable[..., tuple[Tensor, ...]] = regret
        options: dict[str, Any] = {**self.options, "leave_one_out_error": None, "in_range": True}
        if self.kind == "float32":
            function, options = quick_regret, {**self.options, "reach": self.reach}
        function = compiled(function) if fused else function
        with products_in(self.kind):
            return torch.cat(
                [function(c, self.head, self.basis, self.limits, **options)[0] for c in chunks(x, self.head[0].dtype)]
            )
