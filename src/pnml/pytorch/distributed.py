"""Under ``torch.distributed``: each rank sees its share of the data, and all end with the statistic of the whole."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from pnml.backend.arrays import to_numpy
from pnml.core.correlation import Correlation
from pnml.core.sample import RowSample


def is_distributed() -> bool:
    """Return whether a process group of more than one rank is up."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def is_first_rank() -> bool:
    """Return whether this is the rank that speaks for all, or the only one."""
    return not is_distributed() or dist.get_rank() == 0


def agree_over_ranks(head_name: str | None) -> str | None:
    """Return the name of the head that the ranks with data found; None when none has any."""
    if not is_distributed():
        return head_name
    names: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(names, head_name)
    found = sorted({name for name in names if name is not None})
    if len(found) > 1:
        raise ValueError(f"the ranks found different heads, {found}: run the same model everywhere, or name its head")
    return found[0] if found else None


def sum_over_ranks(statistic: Correlation) -> Correlation:
    """Add the statistics of all ranks: one all-reduce of M² doubles, and the samples gathered.

    A rank without rows takes part all the same.
    """
    if not is_distributed():
        return statistic
    shapes: list[tuple[int, int, int]] = [(0, 0, 0)] * dist.get_world_size()
    dist.all_gather_object(shapes, (statistic.count, statistic.left_out, statistic.n_features or 0))
    counts, left_out, widths = zip(*shapes, strict=True)
    width, count = max(widths), sum(counts)
    if any(w not in {0, width} for w in widths):
        raise ValueError(f"the ranks' embeddings differ in width: {sorted(set(widths))}")
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    total = torch.zeros(width * width + 1, dtype=torch.float64)
    if statistic.count:
        total[:-1] = torch.from_numpy(statistic.matrix).flatten()
        total[-1] = statistic.norm_sum
    total = total.to(device)
    dist.all_reduce(total)
    held = to_numpy(total)
    matrix = held[:-1].reshape(width, width)
    sample = _sample_over_ranks(statistic.sample)
    return Correlation.restore(
        matrix, count, held[-1], unit_norm=statistic.unit_norm, sample=sample, left_out=sum(left_out)
    )


def _sample_over_ranks(sample: RowSample | None) -> RowSample | None:
    mine = {} if sample is None else sample.arrays()
    held = [mine] * dist.get_world_size()
    dist.all_gather_object(held, mine)
    samples = [one for arrays in held if (one := RowSample.from_arrays(arrays)) is not None]
    return sum(samples[1:], start=samples[0]) if samples else None


def gather_over_ranks(scores: Tensor) -> Tensor:
    """Concatenate the scores of all ranks, in rank order."""
    if not is_distributed():
        return scores
    parts: list[Tensor] = [scores] * dist.get_world_size()
    dist.all_gather_object(parts, scores)
    return torch.cat(parts)
