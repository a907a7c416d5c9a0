"""Jobs for Ray's workers: a range of rows summed or scored, all ranges of an input, and sums added up in a tree.

A result travels as one row of a Ray dataset.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from safetensors.numpy import load, save

from pnml.core.correlation import Correlation
from pnml.engines.local import Sums, score_rows, sum_rows
from pnml.io.embedded_images import EmbeddedImages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pnml.core.detector import Detector
    from pnml.engines.ranges import Range
    from pnml.io.source import Samples
    from pnml.io.store import PartStore

Row = dict[str, Any]
"""A row of a Ray dataset."""

_BRANCHES = 8

T = TypeVar("T")


@dataclass(frozen=True)
class SumJob:
    """Sum the statistic of a range; the attributes are the arguments of :func:`~pnml.engines.local.sum_rows`."""

    samples: Samples
    head: Detector

    def __call__(self, start: int, stop: int) -> Row:
        """Return the sums as a row; see :func:`row_to_sums`."""
        return sums_to_row(sum_rows(self.samples, start, stop, self.head))


@dataclass(frozen=True)
class ScoreJob:
    """Score and store a range; the attributes are the arguments of :func:`~pnml.engines.local.score_rows`."""

    samples: Samples
    detector: Detector
    store: PartStore
    by_layer: bool = False

    def __call__(self, start: int, stop: int) -> Row:
        """Return the summary as JSON in a row."""
        rows = [(start, stop)]
        return {"summary": score_rows(self.samples, rows, self.detector, self.store, by_layer=self.by_layer).to_json()}


def sums_to_row(sums: Sums) -> Row:
    """Return sums as a row: the arrays as safetensors, the rest as JSON."""
    arrays, info = sums.correlation.arrays()
    contiguous = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    return {"arrays": save(contiguous), "info": json.dumps(info), "skipped": json.dumps(sums.skipped)}


def row_to_sums(row: Row) -> Sums:
    """Return the sums that :func:`sums_to_row` wrote.

    >>> import numpy as np
    >>> rows = np.array([[3.0, 4.0], [0.0, 5.0]])
    >>> sums = row_to_sums(sums_to_row(Sums(Correlation().update(rows), ("a.png",))))
    >>> sums.correlation == Correlation().update(rows), sums.skipped
    (True, ('a.png',))
    """
    info = json.loads(row["info"])
    return Sums(Correlation.from_arrays(load(row["arrays"]), info), tuple(json.loads(row["skipped"])))


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
    before = context.enable_progress_bars
    context.enable_progress_bars = False
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
    rest: list[T] = []
    for level in levels:
        rest = [*level, *rest]
        if len(rest) > 1:
            rest = [add(*rest)]
    (whole,) = rest
    return whole


def add_tables(*tables: Any) -> Any:
    """Add the sums in the rows of Arrow tables, in their order; return a table of one row."""
    from pyarrow import Table

    total, *others = (row_to_sums(row) for table in tables for row in table.to_pylist())
    for sums in others:
        total = Sums(total.correlation + sums.correlation, total.skipped + sums.skipped)
    return Table.from_pylist([sums_to_row(total)])
