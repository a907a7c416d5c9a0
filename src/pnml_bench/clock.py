"""Seconds per stage, and the memory that a stage takes beyond what was in use before it."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """Adds up the wall time of named stages; the time of an inner stage is not counted in the outer one.

    CUDA devices work asynchronously, so the clock synchronises where a stage begins or ends.

    >>> clock = Clock(torch.device("cpu"))
    >>> with clock("outer"), clock("inner"):
    ...     pass
    >>> sorted(clock.seconds)
    ['inner', 'outer']
    """

    def __init__(self, device: torch.device) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._device = device
        self._stages: list[str] = []
        self._since = 0.0

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Count what happens in the context as ``stage``."""
        self._credit()
        self._stages.append(stage)
        try:
            yield
        finally:
            self._credit()
            self._stages.pop()

    @contextmanager
    def lap(self) -> Iterator[dict[str, float]]:
        """Yield a dict that holds, once the context is left, the seconds of its stages."""
        before = dict(self.seconds)
        passed: dict[str, float] = {}
        yield passed
        for stage, total in self.seconds.items():
            if total > before.get(stage, 0.0):
                passed[stage] = total - before.get(stage, 0.0)

    def _credit(self) -> None:
        if self._device.type == "cuda":  # pragma: no cover - needs a CUDA device
            torch.cuda.synchronize(self._device)
        now = perf_counter()
        if self._stages:
            self.seconds[self._stages[-1]] += now - self._since
        self._since = now


_PROCESS = Path("/proc/self")


@dataclass
class Memory:
    """Bytes above what was in use before, at the peak and at the end; None where they cannot be measured."""

    peak: int | None = None
    kept: int | None = None

    def then(self, later: Memory) -> int | None:
        """Return the peak of this stage and a later one that builds on what this one has kept.

        >>> Memory(peak=50, kept=30).then(Memory(peak=40, kept=0))
        70
        """
        if self.peak is None or self.kept is None or later.peak is None:
            return None
        return max(self.peak, self.kept + later.peak)


@contextmanager
def watched_memory(device: torch.device) -> Iterator[Memory]:
    """Yield the :class:`Memory` of the context, filled in once it is left.

    On a CUDA device it is what PyTorch allocates there. On a CPU it is the resident memory of the process, whose peak
    can be reset for each stage on Linux only.

    >>> with watched_memory(torch.device("cpu")) as memory:
    ...     rows = torch.ones(10_000_000)
    >>> memory.peak is None or memory.peak > 30_000_000
    True
    """
    memory = Memory()
    if device.type == "cuda":  # pragma: no cover - needs a CUDA device
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        yield memory
        memory.peak = torch.cuda.max_memory_allocated(device) - before
        memory.kept = torch.cuda.memory_allocated(device) - before
        return
    is_measured = _reset_peak()
    before, _ = _resident() if is_measured else (0, 0)
    yield memory
    if is_measured:
        _release_free_memory()
        now, peak = _resident()
        memory.peak, memory.kept = max(0, peak - before), max(0, now - before)


def _reset_peak() -> bool:
    """Reset the largest resident size so far; return whether the system can."""
    if not (_PROCESS / "clear_refs").exists():
        return False
    _release_free_memory()
    try:
        (_PROCESS / "clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _release_free_memory() -> None:
    """Return to the system what the allocator holds free: it would count as resident."""
    with suppress(AttributeError):  # a C library without malloc_trim
        ctypes.CDLL(None).malloc_trim(0)


def _resident() -> tuple[int, int]:
    """Return the resident memory of the process in bytes: now, and the most since the peak was reset."""
    lines = (_PROCESS / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    entries = dict(line.split(":", 1) for line in lines)
    now, peak = (1024 * int(entries[name].split()[0]) for name in ("VmRSS", "VmHWM"))
    return now, peak
