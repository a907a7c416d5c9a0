"""What each rank does in test_distributed: fit and calibrate on its share, and write what it ends with."""

from __future__ import annotations

import gc
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

import pnml
from pnml.pytorch.contract import Contract, Head, Layer, Mask
from pnml.pytorch.distributed import agreed_over_ranks, sum_over_ranks

from .networks import CNN, images, mlp, rows

SHARES = {
    "even": [[(0, 24), (24, 48)], [(48, 72), (72, 96)]],
    "uneven": [[(0, 40), (40, 70), (70, 90)], [(90, 96)]],
    "one rank empty": [[], [(0, 50), (50, 96)]],
}
"""Which rows of the data each of the two ranks gets, batch by batch."""


def shares(data: Tensor, how: str, rank: int) -> list[Tensor]:
    return [data[start:stop] for start, stop in SHARES[how][rank]]


def complaint(work: object, *args: object) -> str:
    try:
        work(*args)  # type: ignore[operator]
    except ValueError as error:
        return str(error)
    return "none"


def main(folder: Path) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    rank = dist.get_rank()
    train, held_out, fresh = rows(96).double(), rows(96, seed=1).double(), rows(30, seed=2).double()
    for how in SHARES:
        guard = pnml.guard(mlp().double()).fit(shares(train, how, rank), progress=how == "even")
        guard.calibrate(shares(held_out, how, rank), by="prediction", false_alarm_rate=0.2, progress=False)
        guard.save(folder / f"{how}-{rank}.safetensors")
        np.savez(folder / f"{how}-{rank}.npz", **guard(fresh).to_table())
    torch.manual_seed(0)
    wrapped = nn.parallel.DistributedDataParallel(CNN().double())
    guard = pnml.guard(wrapped).fit(shares(images(96).double(), "one rank empty", rank), progress=False)
    np.savez(folder / f"parallel-{rank}.npz", **guard(images(30, seed=2).double()).to_table())
    head = Head("fc")
    complaints = [
        complaint(lambda: pnml.guard(mlp().double()).fit([], progress=False)),
        complaint(lambda: pnml.guard(mlp().double()).fit([train], progress=False).calibrate([], progress=False)),
        complaint(agreed_over_ranks, Contract(Head(f"fc{rank}"))),
        complaint(agreed_over_ranks, Contract(head, (Layer(f"block{rank}"),))),
        complaint(agreed_over_ranks, Contract(head, mask=Mask("token", token=rank))),
        complaint(sum_over_ranks, pnml.Correlation().update(np.eye(2 + rank))),
    ]
    (folder / f"complaints-{rank}.txt").write_text("\n".join(line.split(":")[0] for line in complaints))
    del wrapped, guard
    gc.collect()  # a process group that something still refers to can abort its process at exit
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
