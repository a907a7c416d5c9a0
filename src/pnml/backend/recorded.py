"""A function of arrays on an NVIDIA GPU, recorded once and then replayed by one call.

For a small batch, asking for dozens of operations one by one takes longer than they do. A CUDA graph asks for all of
them at once. It reads and writes memory of its own, so a batch is copied in and its results are copied out.
"""

from __future__ import annotations

import logging
from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING, Any

import array_api_compat as compat

from pnml.backend.arrays import is_traced

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.backend.arrays import Array

_CALLS_BEFORE = 3  # of a shape: to record costs about as much as ten calls
_MOST = 4  # shapes that are kept
_LOG = logging.getLogger(__name__)


class Recorded:
    """A function of arrays, or None, that gives what it would give, on a GPU by replaying what it did.

    The function must look at no value, and all that it reads besides its argument must stay where it is. ``record``
    makes a function that replays, given the function and arrays like those to come.
    """

    def __init__(
        self, function: Callable[..., Array], record: Callable[..., Callable[..., Array]] | None = None
    ) -> None:
        self._function = function
        self._record = record or record_cuda_graph
        self._calls: Counter[tuple[Any, ...]] = Counter()
        self._replays: dict[tuple[Any, ...], Callable[..., Array]] = {}
        self._lock = Lock()

    def __call__(self, *arrays: Array | None) -> Array:
        """Return the function of arrays, of which the first is not None."""
        key = _key(arrays)
        if key is None:
            return self._function(*arrays)
        with self._lock:  # a replay must not be asked for while another batch is on its way in or out
            replay = self._replays.get(key) or self._learn(key, arrays)
            return replay(*arrays)

    def _learn(self, key: tuple[Any, ...], arrays: tuple[Array | None, ...]) -> Callable[..., Array]:
        """Return the function itself, or what replays it once a shape has come often enough."""
        self._calls[key] += 1
        if self._calls[key] <= _CALLS_BEFORE:
            return self._function
        try:
            replay = self._record(self._function, *arrays)
        except RuntimeError as error:  # such as too little memory
            _LOG.info("scoring without a CUDA graph: %s", error)
            replay = self._function
        self._replays[key] = replay
        if len(self._replays) > _MOST:
            oldest = next(iter(self._replays))
            del self._replays[oldest], self._calls[oldest]
        return replay

    def __getstate__(self) -> dict[str, Any]:
        return {"_function": self._function, "_record": self._record}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_function"], state["_record"])  # type: ignore[misc]


def _key(arrays: tuple[Array | None, ...]) -> tuple[Any, ...] | None:
    """Return what a recording is good for; None where nothing can be recorded."""
    x = arrays[0]
    if not compat.is_torch_array(x) or x.device.type != "cuda" or x.requires_grad or not x.shape[0] or is_traced():
        return None
    import torch

    if torch.cuda.is_current_stream_capturing():
        return None
    shapes = tuple((tuple(one.shape), one.dtype) for one in arrays if one is not None)
    return shapes, x.device, torch.cuda.current_stream(x.device).cuda_stream


def record_cuda_graph(function: Callable[..., Array], *arrays: Array | None) -> Callable[..., Array]:
    """Record a function of arrays like these, and return what replays it on the current stream."""
    import torch

    held = [None if one is None else one.clone() for one in arrays]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(arrays[0].device), torch.no_grad():  # type: ignore[union-attr]
        torch.cuda.current_stream().synchronize()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            output = function(*held)

    def replay(*arrays: Array | None) -> Array:
        for one, array in zip(held, arrays, strict=True):
            if one is not None:
                one.copy_(array)
        graph.replay()
        return output.clone()

    return replay
