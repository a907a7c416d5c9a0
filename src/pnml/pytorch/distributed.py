"""Under ``torch.distributed``: each rank sees its share of the data, and all end with the statistic of the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from pnml.backend.arrays import to_numpy
from pnml.core.correlation import Correlation
from pnml.core.sample import RowSample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.pytorch.contract import Contract

T = TypeVar("T")


def is_distributed() -> bool:
    """Return whether a process group of more than one rank is up."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def is_first_rank() -> bool:
    """Return whether this is the rank that speaks for all, or the only one."""
    return not is_distributed() or dist.get_rank() == 0


def gather_over_ranks(parts: list[T]) -> list[T]:
    """Return the parts of all ranks, in rank order."""
    if not is_distributed():
        return parts
    every: list[list[T]] = [parts] * dist.get_world_size()
    dist.all_gather_object(every, parts)
    return [part for held in every for part in held]


def agreed_over_ranks(mine: Contract | None) -> Contract | None:
    """Return how the ranks that saw data read their model, None where none saw any; raise where they differ."""
    contracts = gather_over_ranks([] if mine is None else [mine])
    for name in ("head", "layers", "mask", "has_input", "dtype"):
        ways = {getattr(contract, name) for contract in contracts}
        if len(ways) > 1:
            raise ValueError(
                f"the ranks differ in the {name} of the model: {sorted(map(str, ways))}. Run the same model everywhere "
                "and begin on every rank with a batch of several samples, of different lengths if they are texts, or "
                "say head=, reading=, layers= and mask="
            )
    if not contracts:
        return None
    return contracts[0]._replace(counters=tuple(sorted({name for each in contracts for name in each.counters})))


def sum_over_ranks(statistic: Correlation) -> Correlation:
    """Add the statistics of all ranks: one all-reduce of ΣM² doubles and the class sums, and the samples gathered.

    A rank without rows takes part all the same.
    """
    if not is_distributed():
        return statistic
    shapes: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())] * dist.get_world_size()
    dist.all_gather_object(shapes, (statistic.count, statistic.left_out, statistic.widths or ()))
    counts, left_out, _ = zip(*shapes, strict=True)
    every = sorted({widths for count, _, widths in shapes if count})
    if len(every) > 1:
        raise ValueError(f"the ranks' embeddings and features differ in width: {every}")
    if not every:
        empty = Correlation(statistic.widths, unit_norm=statistic.unit_norm, n_classes=statistic.n_classes)
        empty.left_out = sum(left_out)
        return empty
    widths, n_classes = every[0], statistic.n_classes
    sizes = [*(width * width for width in widths), n_classes * sum(widths), n_classes, 1]
    parts: list[NDArray[np.float64]] = [np.zeros(size) for size in sizes]
    if statistic.count:
        matrices = [statistic.layer_matrix(number) for number in range(len(widths))]
        parts = [*matrices, statistic.class_sums, statistic.class_counts, np.array([statistic.norm_sum])]
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    total = torch.from_numpy(np.concatenate([part.ravel().astype(np.float64) for part in parts])).to(device)
    dist.all_reduce(total)
    *flat, sums, class_counts, norm_sum = np.split(to_numpy(total), np.cumsum(sizes)[:-1])
    return Correlation.restore(
        [matrix.reshape(width, width) for matrix, width in zip(flat, widths, strict=True)],
        sum(counts),
        float(norm_sum[0]),
        unit_norm=statistic.unit_norm,
        sample=_sample_over_ranks(statistic.sample),
        left_out=sum(left_out),
        classes=(class_counts.astype(np.int64), sums.reshape(n_classes, sum(widths))),
    )


def _sample_over_ranks(sample: RowSample | None) -> RowSample | None:
    every = gather_over_ranks([{} if sample is None else sample.arrays()])
    samples = [one for arrays in every if (one := RowSample.from_arrays(arrays)) is not None]
    return sum(samples[1:], start=samples[0]) if samples else None
