"""Work on every piece of an input, spread over a cluster by Ray Data, and what comes of it, in order."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pnml.io.embedded import EmbeddedImages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pnml.engines.work import Row, Scoring, Summing


def mapped(ray: Any, work: Summing | Scoring, pieces: list[tuple[int, int]]) -> Iterator[Any]:
    """Do the work on every piece; yield references to the tables of one row that come of it, in order."""
    job = ray.put(ray.cloudpickle.dumps(work))
    rows = [{"start": start, "stop": stop} for start, stop in pieces]
    data = ray.data.from_items(rows, override_num_blocks=len(rows))
    if isinstance(work.samples, EmbeddedImages):  # actors keep the model; one core is left free for everything else
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        pool = ray.data.ActorPoolStrategy(min_size=1, max_size=gpus or max(1, int(resources.get("CPU", 1)) - 1))
        needs = {"num_gpus": 1} if gpus else {"num_cpus": 1}
        data = data.map(OnActor, fn_kwargs={"job": job}, compute=pool, **needs)
    else:
        data = data.map(on_task, fn_kwargs={"job": job}, num_cpus=1)
    data.context.execution_options.preserve_order = True
    data.context.enable_progress_bars = False
    data.context.raise_original_map_exception = True
    try:
        for bundle in data.iter_internal_ref_bundles():
            yield from bundle.block_refs
    except ray.exceptions.RayTaskError as error:
        refused = error.cause
        if not isinstance(refused, RefusedError):
            raise
        raise ValueError(refused.said) from None


class RefusedError(Exception):
    """What a user can mend, on its way from a worker; Ray adds to the message of an error, so it is kept apart."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


def on_task(piece: Row, job: Any) -> Row:
    """Do a job on a piece, in any worker."""
    try:
        return _fetched(job)(piece["start"], piece["stop"])
    except (ValueError, OSError, ImportError) as error:
        raise RefusedError(str(error)) from error


class OnActor:
    """Do a job on pieces, in a worker of its own, which lives as long as the job and keeps the model."""

    def __call__(self, piece: Row, job: Any) -> Row:
        """Do it on one."""
        return on_task(piece, job)


@lru_cache(maxsize=1)
def _fetched(job: Any) -> Summing | Scoring:
    """The job, brought to this process once."""
    import ray

    try:
        work: Summing | Scoring = ray.cloudpickle.loads(ray.get(job))
    except ImportError as error:
        raise ImportError(f"a worker cannot load the model ({error}): install its package on all machines") from error
    if isinstance(work.samples, EmbeddedImages):
        import torch

        work.samples.guard.to("cuda" if torch.cuda.is_available() else "cpu")
    return work
