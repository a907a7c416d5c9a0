"""What each rank does in test_distributed: fit and calibrate on its share, and write what it ends with."""

from __future__ import annotations

import gc
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

import pnml
from pnml.pytorch.affine import Affine
from pnml.pytorch.distributed import Found, agree_over_ranks, sum_over_ranks
from pnml.pytorch.endings import Ending
from pnml.pytorch.last_layer import LastLayer
from pnml.pytorch.layers import Layer, LayersNotFoundWarning
from pnml.pytorch.token_mask import MaskSource

from .networks import CLASSES, CNN, images, mlp, rows

SHARES = {
    "even": [[(0, 24), (24, 48)], [(48, 72), (72, 96)]],
    "uneven": [[(0, 40), (40, 70), (70, 90)], [(90, 96)]],
    "one rank empty": [[], [(0, 50), (50, 96)]],
}
"""Which rows of the data each of the two ranks gets, batch by batch."""


MANY = 3000
"""More rows than the sample of a statistic holds."""


def one_layer() -> nn.Linear:
    """A classifier whose embeddings are its inputs, to the last bit, whatever the batches."""
    torch.manual_seed(0)
    return nn.Linear(8, CLASSES).double()


class Skipping(nn.Module):
    """A classifier that calls one of its layers only in batches of another size than 20 rows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 8).double(), nn.Linear(8, CLASSES).double()

    def forward(self, x: Tensor) -> Tensor:
        if len(x) != 20:
            self.first(x)
        logits: Tensor = self.last(x)
        return logits


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
    mine = rows(MANY).double()[rank::2]
    pnml.guard(one_layer(), layers="last").fit([mine[:400], mine[400:]], progress=False).save(folder / f"many-{rank}")
    torch.manual_seed(0)
    wrapped = nn.parallel.DistributedDataParallel(CNN().double())
    guard = pnml.guard(wrapped).fit(shares(images(96).double(), "one rank empty", rank), progress=False)
    np.savez(folder / f"parallel-{rank}.npz", **guard(images(30, seed=2).double()).to_table())
    with warnings.catch_warnings():
        warnings.simplefilter("error" if rank == 0 else "ignore", LayersNotFoundWarning)
        batches = [train[:40]] if rank == 0 else [train[40:76], train[76:]]
        guard = pnml.guard(Skipping()).fit(batches, progress=False)
    guard.save(folder / f"skipping-{rank}.safetensors")
    np.savez(folder / f"skipping-{rank}.npz", **guard(fresh).to_table())
    other_width = pnml.Correlation().update(np.eye(2 + rank))
    head = Affine(torch.eye(2), torch.zeros(2))
    reading = Ending("masked mean" if rank else "mean")  # as where all tokens of the first rank are the same
    complaints = [
        complaint(lambda: pnml.guard(mlp().double()).fit([], progress=False)),
        complaint(lambda: pnml.guard(mlp().double()).fit([train], progress=False).calibrate([], progress=False)),
        complaint(agree_over_ranks, Found(LastLayer(f"fc{rank}", head), ())),
        complaint(
            agree_over_ranks, Found(LastLayer("fc", head, reading), (), MaskSource(token=0) if rank else None)
        ).split(",")[0],
        complaint(agree_over_ranks, Found(LastLayer("fc", head), (Layer(f"block{rank}"),))),
        complaint(agree_over_ranks, Found(LastLayer("fc", head), (Layer("block"),), MaskSource(token=rank))).split(",")[
            0
        ],
        complaint(agree_over_ranks, Found(LastLayer("fc", head), (), MaskSource(token=rank))),
        complaint(sum_over_ranks, other_width),
    ]
    (folder / f"complaints-{rank}.txt").write_text("\n".join(complaints))
    del wrapped, guard
    gc.collect()  # a process group that something still refers to can abort its process at exit
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
