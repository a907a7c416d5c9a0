"""Timing on a machine that others use too: contenders take turns, and what was measured while it was busy is out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Work = Callable[[], object]

SLOWEST = 1.3
"""How many times its best a fixed calculation may take before and after a sample for the sample to count."""


@dataclass(frozen=True)
class Sample:
    """One run: seconds on the wall's clock and of the process, and whether the machine was ours meanwhile."""

    wall: float
    cpu: float
    calm: bool


class Referee:
    """Runs work and watches the machine by a calculation that should always take the same time."""

    def __init__(self) -> None:
        self._factor = torch.rand(384, 384)
        self.best = min(self._calibrate() for _ in range(50))

    def _calibrate(self) -> float:
        begin = time.perf_counter()
        for _ in range(4):
            self._factor @ self._factor
        return time.perf_counter() - begin

    def sample(self, work: Work) -> Sample:
        """Run the work once."""
        before = self._calibrate()
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        after = self._calibrate()
        self.best = min(self.best, before, after)
        return Sample(wall, cpu, calm=max(before, after) <= SLOWEST * self.best)

    def race(self, works: Mapping[str, Work], *, repeats: int, against: str) -> dict[str, dict[str, Any]]:
        """Let all take turns, ``repeats`` rounds long; a sample that was disturbed is tried once more.

        Returns:
            Of each its seconds and CPU seconds as median and quartiles, how many samples were dropped, and how many
            times as long as ``against`` it took, in the median over the rounds. Where less than half of the samples
            were eval_no_grad, all are kept, and ``contended`` says so.
        """
        rounds: list[dict[str, Sample]] = []
        for _ in range(repeats):
            taken = {}
            for name, work in works.items():
                taken[name] = self.sample(work)
                if not taken[name].calm:
                    taken[name] = self.sample(work)
            rounds.append(taken)
        return {name: _summary(name, rounds, against) for name in works}


def _summary(name: str, rounds: list[dict[str, Sample]], against: str) -> dict[str, Any]:
    calm = [taken for taken in rounds if taken[name].calm]
    contended = 2 * len(calm) < len(rounds)
    kept = rounds if contended else calm
    paired = [taken for taken in kept if contended or taken[against].calm] or kept
    return {
        "seconds": spread([taken[name].wall for taken in kept]),
        "cpu_seconds": spread([taken[name].cpu for taken in kept]),
        "times_as_long": spread([taken[name].wall / taken[against].wall for taken in paired]),
        "times_the_cpu": spread([taken[name].cpu / taken[against].cpu for taken in paired]),
        "samples": len(kept),
        "dropped": len(rounds) - len(kept),
        "contended": contended,
    }


def spread(values: list[float]) -> dict[str, float]:
    """Give median and quartiles."""
    low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return {"median": median(values), "lower": low, "upper": high}
