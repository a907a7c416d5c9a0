"""A function of an array on an NVIDIA GPU, recorded once and then replayed by one call.

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
    """A function of one array that gives what it would give, on a GPU by replaying what it did.

    The function must look at no value, and all that it reads besides its argument must stay where it is.

    Args:
        function: from an array to an array.
        record: makes a function that replays, given the function and an array like those to come.
    """

    def __init__(
        self,
        function: Callable[[Array], Array],
        record: Callable[[Callable[[Array], Array], Array], Callable[[Array], Array]] | None = None,
    ) -> None:
        self._function = function
        self._record = record or record_cuda_graph
        self._calls: Counter[tuple[Any, ...]] = Counter()
        self._replays: dict[tuple[Any, ...], Callable[[Array], Array]] = {}
        self._lock = Lock()

    def __call__(self, x: Array) -> Array:
        """Return the function of ``x``."""
        key = _key(x)
        if key is None:
            return self._function(x)
        with self._lock:  # a replay must not be asked for while another batch is on its way in or out
            replay = self._replays.get(key) or self._learn(key, x)
            return replay(x)

    def _learn(self, key: tuple[Any, ...], x: Array) -> Callable[[Array], Array]:
        """Return the function itself, or what replays it once a shape has come often enough."""
        self._calls[key] += 1
        if self._calls[key] <= _CALLS_BEFORE:
            return self._function
        try:
            replay = self._record(self._function, x)
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


def _key(x: Array) -> tuple[Any, ...] | None:
    """Return what a recording is good for; None where nothing can be recorded."""
    if not compat.is_torch_array(x) or x.device.type != "cuda" or x.requires_grad or not x.shape[0] or is_traced():
        return None
    import torch

    if torch.cuda.is_current_stream_capturing():
        return None
    return tuple(x.shape), x.dtype, x.device, torch.cuda.current_stream(x.device).cuda_stream


def record_cuda_graph(function: Callable[[Array], Array], x: Array) -> Callable[[Array], Array]:
    """Record a function of arrays like ``x``, and return what replays it on the current stream."""
    import torch

    given, graph = x.clone(), torch.cuda.CUDAGraph()
    with torch.cuda.device(x.device), torch.no_grad():
        torch.cuda.current_stream().synchronize()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            found = function(given)

    def replay(x: Array) -> Array:
        given.copy_(x)
        graph.replay()
        return found.clone()

    return replay
