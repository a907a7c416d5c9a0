"""Under ``torch.distributed``: each rank sees its share of the data, and all end with the statistic of the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from pnml.backend.arrays import to_numpy
from pnml.core.correlation import Correlation
from pnml.core.sample import RowSample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.pytorch.last_layer import LastLayer
    from pnml.pytorch.layers import Layer
    from pnml.pytorch.token_mask import MaskSource

T = TypeVar("T")


def is_distributed() -> bool:
    """Return whether a process group of more than one rank is up."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def is_first_rank() -> bool:
    """Return whether this is the rank that speaks for all, or the only one."""
    return not is_distributed() or dist.get_rank() == 0


class Found(NamedTuple):
    """How a rank reads its model.

    Attributes:
        head: its last layer.
        layers: those that are watched.
        source: what says which tokens count, where no name of an argument does.
    """

    head: LastLayer
    layers: tuple[Layer, ...]
    source: MaskSource | None = None


def agree_over_ranks(mine: Found | None) -> Found | None:
    """Return how the ranks with data read the model; None when none has any.

    Where a rank had to go on without layers, all do.
    """
    if not is_distributed():
        return mine
    every: list[Found | None] = [None] * dist.get_world_size()
    dist.all_gather_object(every, mine)
    found = [one for one in every if one is not None]
    if not found:
        return None
    heads, choices = sorted({one.head.name for one in found}), {one.layers for one in found}
    readings = sorted({one.head.described for one in found})
    sources = {one.source for one in found}
    if len(heads) > 1:
        raise ValueError(f"the ranks found different heads, {heads}: run the same model everywhere, or name its head")
    if len(readings) > 1:
        raise ValueError(
            f"the ranks disagree on what the model makes of its head's output, {readings}: begin on every rank with a "
            "batch of several samples, of different lengths if they are texts"
        )
    agreed = mine or found[0]
    layers: tuple[Layer, ...] = () if () in choices else agreed.layers
    if len(sources) > 1 and (layers or agreed.head.reads_mask):
        raise ValueError(
            f"the ranks found different padding, {', '.join(sorted(map(str, sources)))}: let the model declare it, "
            "nn.Embedding(..., padding_idx=0), or take a mask as attention_mask"
        )
    if layers and len(choices) > 1:
        names = sorted([str(layer) for layer in choice] for choice in choices)
        raise ValueError(f"the ranks found different layers, {names}: run the same model everywhere, or name them")
    return agreed._replace(layers=layers)


def sum_over_ranks(statistic: Correlation) -> Correlation:
    """Add the statistics of all ranks: one all-reduce of ΣM² doubles and the class sums, and the samples gathered.

    A rank without rows takes part all the same.
    """
    if not is_distributed():
        return statistic
    shapes: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, ())] * dist.get_world_size()
    dist.all_gather_object(shapes, (statistic.count, statistic.left_out, statistic.widths or ()))
    counts, left_out, _ = zip(*shapes, strict=True)
    found = sorted({widths for count, _, widths in shapes if count})
    if len(found) > 1:
        raise ValueError(f"the ranks' embeddings and features differ in width: {found}")
    if not found:
        empty = Correlation(statistic.widths, unit_norm=statistic.unit_norm, n_classes=statistic.n_classes)
        empty.left_out = sum(left_out)
        return empty
    widths, n_classes = found[0], statistic.n_classes
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
    mine = {} if sample is None else sample.arrays()
    held = [mine] * dist.get_world_size()
    dist.all_gather_object(held, mine)
    samples = [one for arrays in held if (one := RowSample.from_arrays(arrays)) is not None]
    return sum(samples[1:], start=samples[0]) if samples else None


def gather_over_ranks(parts: list[T]) -> list[T]:
    """Return the parts of all ranks, in rank order."""
    if not is_distributed():
        return parts
    every: list[list[T]] = [parts] * dist.get_world_size()
    dist.all_gather_object(every, parts)
    return [part for held in every for part in held]
