"""Seconds per stage."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
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
