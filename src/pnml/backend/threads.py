"""Pieces of work on all cores, each piece wholly on one.

A library that spreads one small product over its threads has them wait for each other at its end, and all but one of
them idle during whatever comes between two products. Pieces that have nothing to do with each other need neither.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import array_api_compat as compat
import numpy as np
from threadpoolctl import ThreadpoolController

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pnml.backend.arrays import Array

    Piece = TypeVar("Piece")
    Found = TypeVar("Found")

_IN_USE = threading.Lock()


def spread(work: Callable[[Piece], Found], pieces: Sequence[Piece], beside: Array) -> Iterator[Found]:
    """Yield ``work(piece)`` of every piece, in their order, whatever the number of threads.

    Args:
        work: computes in NumPy or PyTorch, as ``beside`` is of the one or the other.
        pieces: what to work on.
        beside: an array as they are worked on. There are as many threads as its library would use, and one where that
            library cannot be told to leave them to us, the array lies on another device, or gradients are wanted.
    """
    threads = _threads(beside) if len(pieces) > 1 else 1
    with one_thread() if threads > 1 else nullcontext() as granted:
        if granted:
            yield from _pool(os.getpid(), threads, in_torch=compat.is_torch_array(beside)).map(work, pieces)
        else:
            yield from map(work, pieces)


@contextmanager
def one_thread() -> Iterator[bool]:
    """Give NumPy's products one thread each; of callers at the same time only the first, who is told so."""
    granted = _IN_USE.acquire(blocking=False)
    try:
        with _blas().limit(limits=1) if granted else nullcontext():
            yield granted
    finally:
        if granted:
            _IN_USE.release()


def _threads(beside: Array) -> int:
    """Return how many threads may share the work on arrays like this one."""
    if type(beside) is np.ndarray:
        return max((int(library.num_threads) for library in _blas().lib_controllers), default=1)
    if not compat.is_torch_array(beside) or beside.device.type != "cpu":
        return 1
    import torch

    recorded = beside.requires_grad and torch.is_grad_enabled()
    return 1 if recorded or not _torch_threads_are_per_caller() else torch.get_num_threads()


@cache
def _pool(process: int, threads: int, *, in_torch: bool) -> ThreadPoolExecutor:  # noqa: ARG001 - threads die in a fork
    """Start threads in which PyTorch, if it is needed, has no threads of its own and records no gradients."""
    pool = ThreadPoolExecutor(threads, "pnml")
    if in_torch:
        import torch

        before, all_there = torch.get_num_threads(), threading.Barrier(threads)

        def begin(_: int) -> None:
            torch.get_num_threads()  # a thread that has not asked forgets its number at the first product
            torch.set_num_threads(1)
            torch.set_grad_enabled(False)
            all_there.wait()

        for _ in pool.map(begin, range(threads)):
            pass
        torch.set_num_threads(before)  # with which threads to come begin; those of the pool keep to one
    return pool


@cache
def _blas() -> ThreadpoolController:
    """Return what counts and limits the threads of NumPy's products."""
    return ThreadpoolController().select(user_api="blas")


@cache
def _torch_threads_are_per_caller() -> bool:
    """Tell whether a thread that calls PyTorch can have a number of threads of its own; only OpenMP sees to that."""
    import torch

    return "backend: OpenMP" in torch.__config__.parallel_info()
