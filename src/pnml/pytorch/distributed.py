"""Under ``torch.distributed``: each rank sees its share of the data, and all end with the statistic of the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch.distributed as dist

from pnml.core.correlation import Correlation

if TYPE_CHECKING:
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
    return [part for rank in every for part in rank]


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
    """Return the sum of the statistics of all ranks; one without rows takes part all the same."""
    if not is_distributed():
        return statistic
    every = [Correlation.from_arrays(*arrays) for arrays in gather_over_ranks([statistic.arrays()])]
    widths = sorted({each.widths or () for each in every if each.count})
    if len(widths) > 1:
        raise ValueError(f"the ranks' embeddings and features differ in width: {widths}")
    with_rows = [each for each in every if each.count] or every[:1]
    total = sum(with_rows[1:], start=with_rows[0])
    total.left_out = sum(each.left_out for each in every)
    return total
