"""Independent pieces of NumPy work on all cores, each piece on one core.

A BLAS that splits one small product over its threads makes them wait for each other at its end, and leaves all but one
idle between two products. Independent pieces need neither.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Piece = TypeVar("Piece")
    Output = TypeVar("Output")

_IN_USE = threading.Lock()  # held while the BLAS is limited to one thread: the limit is global to the process


def spread(work: Callable[[Piece], Output], pieces: Sequence[Piece]) -> Iterator[Output]:
    """Yield ``work(piece)`` of every piece in order, computed on as many threads as NumPy's products would use.

    The outputs do not depend on the number of threads, because every piece is computed by one of them. While another
    caller spreads its work, this one's is computed piece by piece.
    """
    threads = blas_threads() if len(pieces) > 1 else 1
    with one_thread() if threads > 1 else nullcontext() as granted:
        if granted:
            yield from _pool(os.getpid(), threads).map(work, pieces)
        else:
            yield from map(work, pieces)


@contextmanager
def one_thread() -> Iterator[bool]:
    """Limit NumPy's products to one thread each; yield whether this caller was the first to ask, and got it."""
    granted = _IN_USE.acquire(blocking=False)
    try:
        with _blas().limit(limits=1) if granted else nullcontext():
            yield granted
    finally:
        if granted:
            _IN_USE.release()


def blas_threads() -> int:
    """Return how many threads NumPy's products use."""
    return max((int(library.num_threads) for library in _blas().lib_controllers), default=1)


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:  # noqa: ARG001 - threads do not survive a fork
    return ThreadPoolExecutor(threads, "pnml")


@cache
def _blas() -> ThreadpoolController:
    """Return the controller of the BLAS libraries that are loaded."""
    return ThreadpoolController().select(user_api="blas")
