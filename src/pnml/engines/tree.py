"""Add partial sums in a tree, eight at a time, until one is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pnml.engines.jobs import row_to_sums, sums_to_row
from pnml.engines.local import Sums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_BRANCHES = 8

T = TypeVar("T")


def reduce_in_tree(parts: Iterable[T], add: Callable[..., T], branches: int = _BRANCHES) -> T:
    """Add ``branches`` neighbouring parts at a time, as soon as they are there, and their sums likewise.

    The order of additions depends on the number of parts only, so a sum is the same to the last bit every time. Fewer
    than ``branches`` parts of each level wait for others, so few results are kept when parts are references to them.

    >>> reduce_in_tree("abcdefg", lambda *parts: f"({''.join(parts)})", branches=2)
    '(((ab)(cd))((ef)g))'
    """
    levels: list[list[T]] = []
    for part in parts:
        carried = part
        for level in levels:
            level.append(carried)
            if len(level) < branches:
                break
            carried = add(*level)
            level.clear()
        else:
            levels.append([carried])
    left: list[T] = []
    for level in levels:
        left = [*level, *left]
        left = [add(*left)] if len(left) > 1 else left
    (whole,) = left
    return whole


def add_tables(*tables: Any) -> Any:
    """Add the sums in the rows of Arrow tables, in their order; return a table of one row."""
    from pyarrow import Table

    total, *others = (row_to_sums(row) for table in tables for row in table.to_pylist())
    for sums in others:
        total = Sums(total.correlation + sums.correlation, total.skipped + sums.skipped)
    return Table.from_pylist([sums_to_row(total)])
