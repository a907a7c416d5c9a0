"""A step of training on an NVIDIA GPU, recorded once and then replayed by one call.

A step of a network for small images is hundreds of short operations, and asking for them one by one takes the host
several times longer than they take the GPU. A CUDA graph asks for all of them at once. It reads its batch from memory
of its own, and it must not be recorded before everything that is made in a first step is there: compiled code,
gradients, the optimizer's state. So some steps are done first, and undone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    Step = Callable[..., None]

_STEPS_BEFORE = 3
_LOG = logging.getLogger(__name__)


def record_step(
    step: Step,
    batch: tuple[Tensor, ...],
    changed: Callable[[], Iterable[Tensor]],
    *,
    capture: Callable[[Step, tuple[Tensor, ...]], Callable[[], None]] | None = None,
) -> Step:
    """Return a function that does what ``step`` does, on batches with the shapes of ``batch``.

    Nothing is changed by the recording. Where it fails, such as for lack of memory, ``step`` itself is returned.

    Args:
        step: called with the tensors of a batch; must look at no value.
        batch: one batch.
        changed: lists all tensors that a step changes. Those that only the first step makes must start from 0.
        capture: tries a step and returns what replays it; by default a CUDA graph.
    """
    given = tuple(one.clone() for one in batch)
    before = {tensor.data_ptr(): (tensor, tensor.clone()) for tensor in changed()}
    try:
        replay = (capture or capture_cuda_graph)(step, given)
    except RuntimeError as error:
        _LOG.warning("training without a CUDA graph, several times slower: %s", error)
        replay = None
    with torch.no_grad():
        for tensor in changed():
            if tensor.data_ptr() not in before:
                tensor.zero_()
        for tensor, value in before.values():
            tensor.copy_(value)
    if replay is None:
        return step

    def replayed(*batch: Tensor) -> None:
        for own, one in zip(given, batch, strict=True):
            own.copy_(one)
        replay()

    return replayed


def capture_cuda_graph(step: Step, given: tuple[Tensor, ...]) -> Callable[[], None]:
    """Do some steps, record one more, and return what replays it."""
    current, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        for _ in range(_STEPS_BEFORE):
            step(*given)
    current.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(*given)
    return graph.replay
