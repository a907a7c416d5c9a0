"""Run a job on every range of an input with Ray Data, and yield the results in order."""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pnml.io.embedded_images import EmbeddedImages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pnml.engines.jobs import Row, ScoreJob, SumJob
    from pnml.engines.ranges import Range


def map_ranges(ray: Any, job: SumJob | ScoreJob, ranges: list[Range]) -> Iterator[Any]:
    """Run the job on every range; yield references to the resulting tables of one row, in order."""
    reference = ray.put(ray.cloudpickle.dumps(job))
    rows = [{"start": start, "stop": stop} for start, stop in ranges]
    data = ray.data.from_items(rows, override_num_blocks=len(rows))
    if isinstance(job.samples, EmbeddedImages):  # actors keep the model; one core stays free for other tasks
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        pool = ray.data.ActorPoolStrategy(min_size=1, max_size=gpus or max(1, int(resources.get("CPU", 1)) - 1))
        needs = {"num_gpus": 1} if gpus else {"num_cpus": 1}
        data = data.map(JobActor, fn_kwargs={"reference": reference}, compute=pool, **needs)
    else:
        data = data.map(run_job, fn_kwargs={"reference": reference}, num_cpus=1)
    data.context.execution_options.preserve_order = True
    data.context.raise_original_map_exception = True
    try:
        with _no_bars(data.context), _no_bars(ray.data.DataContext.get_current()):  # where older releases of Ray look
            for bundle in data.iter_internal_ref_bundles():
                yield from bundle.block_refs
    except ray.exceptions.RayTaskError as error:
        if not isinstance(error.cause, UserError):
            raise
        raise ValueError(error.cause.message) from None


@contextmanager
def _no_bars(context: Any) -> Iterator[None]:
    """Keep Ray from showing its own progress bars, which would be drawn over ours."""
    before, context.enable_progress_bars = context.enable_progress_bars, False
    try:
        yield
    finally:
        context.enable_progress_bars = before


class UserError(Exception):
    """An error in the user's files, raised by a worker; ``message`` is kept apart from what Ray adds to the text."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def run_job(rows: Row, reference: Any) -> Row:
    """Run a job on a range, in any worker."""
    try:
        return _load_job(reference)(rows["start"], rows["stop"])
    except (ValueError, OSError, ImportError) as error:
        raise UserError(str(error)) from error


class JobActor:
    """Run a job on ranges, in a worker that lives as long as the job and keeps the model."""

    def __call__(self, rows: Row, reference: Any) -> Row:
        """Run it on one range."""
        return run_job(rows, reference)


@lru_cache(maxsize=1)
def _load_job(reference: Any) -> SumJob | ScoreJob:
    """Return the job, fetched once for each process."""
    import ray

    try:
        job: SumJob | ScoreJob = ray.cloudpickle.loads(ray.get(reference))
    except ImportError as error:
        raise ImportError(f"a worker cannot load the model ({error}): install its package on all machines") from error
    if isinstance(job.samples, EmbeddedImages):
        import torch

        job.samples.guard.to("cuda" if torch.cuda.is_available() else "cpu")
    return job
