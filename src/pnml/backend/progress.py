"""Progress bars on stderr, for work that takes a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

T = TypeVar("T")


def track(items: Iterable[T], what: str, *, shown: bool = True, total: int | None = None) -> Generator[T, None, None]:
    """Yield the items, with a bar that shows how many are done and how long the rest will take.

    >>> list(track([1, 2], "counting", shown=False))
    [1, 2]
    """
    if not shown:
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield from progress.track(items, total=total, description=what)  # by default as many as the items say
