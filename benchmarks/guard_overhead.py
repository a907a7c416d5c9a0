"""What guarding adds to the forward pass of DenseNet-BC-100 on the CPU.

Plain and guarded passes take turns, so that whatever else the machine does meets both alike. Of each pair the ratio is
taken; the median of the ratios is reported with the range of their middle half, and beside it the ratio of the fastest
guarded pass to the fastest plain one. Beside the wall clock stands the process's own CPU time, which other processes do
not count into. The passes themselves vary by more than what guarding adds, so the addition is also timed alone:
everything the guard does around the model, on embeddings already computed.

    OMP_NUM_THREADS=2 python benchmarks/guard_overhead.py --rounds 20

Weights are found as ``pnml.bench.zoo.load`` finds them; ``--random`` does without.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median, quantiles

import torch
from torch import Tensor, nn

import pnml
from pnml.bench import zoo

Timed = tuple[float, float]
Work = Callable[[], object]


def timed(work: Work) -> Timed:
    """Give wall and CPU seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def take_turns(plain: Work, guarded: Work, rounds: int) -> tuple[list[Timed], list[Timed]]:
    """Time both in turns, each first in every other round."""
    plains, guardeds = [], []
    for number in range(rounds):
        if number % 2:
            guardeds.append(timed(guarded))
            plains.append(timed(plain))
        else:
            plains.append(timed(plain))
            guardeds.append(timed(guarded))
    return plains, guardeds


def around_the_model(guard: pnml.Guard, images: Tensor) -> Work:
    """Give a call of the guard in which the model is replaced by its embeddings, already computed."""

    class Body(nn.Module):
        """As many modules as the model has, for the guard to look through."""

        def __init__(self, model: nn.Module, head: nn.Linear, embeddings: Tensor) -> None:
            super().__init__()
            self.others = nn.ModuleList(nn.Identity() for _ in model.modules())
            self.head = head
            self.embeddings = embeddings

        def forward(self, _: Tensor) -> Tensor:
            logits: Tensor = self.head(self.embeddings)
            return logits

    with torch.no_grad():
        _, embeddings = guard.run((images,), {})
    alone = pnml.Guard(Body(guard.model, guard.head, embeddings).eval(), head="head")
    alone.detector = guard.detector
    return lambda: alone(images)


def in_percent(values: list[float]) -> str:
    low, _, high = quantiles(values, n=4)
    return f"{median(values):6.2f} %   middle half {low:6.2f} to {high:6.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description="What guarding adds to the forward pass of DenseNet-BC-100.")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--random", action="store_true", help="random weights instead of the CIFAR-10 checkpoint")
    options = parser.parse_args()

    torch.manual_seed(0)
    model = zoo.create("densenet-bc-100", num_classes=10) if options.random else zoo.load("densenet-bc-100_cifar10")
    model = model.eval()
    images = torch.randn(options.batch, 3, 32, 32)
    guard = pnml.guard(model).fit([torch.randn(128, 3, 32, 32) for _ in range(4)])
    guard.calibrate([torch.randn(128, 3, 32, 32) for _ in range(2)])

    def plain() -> None:
        with torch.no_grad():
            model(images)

    alone = around_the_model(guard, images)
    for warm_up in (plain, lambda: guard(images), alone):
        warm_up()
    load = os.getloadavg()[0]
    plains, guardeds = take_turns(plain, lambda: guard(images), options.rounds)
    additions = [timed(alone) for _ in range(100)]
    print(f"DenseNet-BC-100, batch {options.batch}, {options.rounds} rounds, {torch.get_num_threads()} threads,")
    print(f"load of the machine {load:.1f} before and {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} cores")
    for clock, name in enumerate(("wall", "CPU")):
        ratios = [100 * (g[clock] / p[clock] - 1) for p, g in zip(plains, guardeds, strict=True)]
        typical = median(p[clock] for p in plains)
        fastest = 100 * (min(g[clock] for g in guardeds) / min(p[clock] for p in plains) - 1)
        alone_ms = median(a[clock] for a in additions) * 1000
        print(f"{name:4}  plain pass {typical * 1000:8.1f} ms")
        print(f"      guarded pass, against the plain one beside it         {in_percent(ratios)}")
        print(f"      fastest guarded pass, against the fastest plain one   {fastest:6.2f} %")
        print(f"      the addition timed alone  {alone_ms:6.2f} ms, which is         {0.1 * alone_ms / typical:6.2f} %")


if __name__ == "__main__":
    main()
