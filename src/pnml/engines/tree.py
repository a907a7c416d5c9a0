"""Sums of sums, in a tree: eight at a time, wherever they are, until one is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pnml.engines.work import as_row, statistic_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_BRANCHES = 8

T = TypeVar("T")


def reduce_in_tree(parts: Iterable[T], add: Callable[..., T], branches: int = _BRANCHES) -> T:
    """Add parts up, ``branches`` neighbours at a time, as soon as they have come.

    How they are added depends on their number only, so that a sum is the same to the last bit every time. Fewer than
    ``branches`` parts of each level wait for others, so few results are kept when parts are references to them.

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
    """Add the partial statistics in the rows of Arrow tables, in their order; give a table of one row."""
    from pyarrow import Table

    rows = [row for table in tables for row in table.to_pylist()]
    total, skipped = statistic_of(rows[0])
    for row in rows[1:]:
        statistic, more = statistic_of(row)
        total += statistic
        skipped += more
    return Table.from_pylist([as_row(total, skipped)])
