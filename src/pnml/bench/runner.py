"""Running the benchmark: cell by cell, each result a file, so that a killed run goes on where it stopped."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pnml.bench.dataset_cache import DatasetCache
from pnml.bench.methods import MethodFailedError
from pnml.bench.model_under_test import ModelUnderTest, full_precision
from pnml.bench.protocol import NOISE
from pnml.bench.record import UNAVAILABLE, measure, not_run
from pnml.bench.results import load_results, save_result
from pnml.bench.saved_scores import saved_scores_path

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from pnml.bench.methods import View
    from pnml.bench.options import Options
    from pnml.bench.protocol import Cell
    from pnml.bench.results import Result


@dataclass
class Run:
    """What a run brought: the result of every cell in order, and the seconds of every stage, each counted once."""

    results: list[Result] = field(default_factory=list)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


def run(cells: Iterable[Cell], options: Options) -> Run:
    """Run cells, except those that are finished, and write each result when it is known.

    Networks and image sets that are absent and methods that fail do not stop the run: their cells get a result that
    says why there is none, and are tried again the next time.

    Args:
        cells: what to run, from :func:`pnml.bench.protocol.plan` or :func:`pnml.bench.protocol.paper_plan`.
        options: how.
    """
    cells = list(cells)
    _ = options.torch_device
    known = {result.key: result for result in load_results(options.folder)} if options.folder.is_dir() else {}
    waiting = [cell for cell in cells if options.force or not _is_finished(cell, options, known.get(cell.key))]
    done, shelf = Run(), DatasetCache(options.limit)
    with full_precision():
        for group in _grouped(waiting, lambda cell: (cell.model, cell.ind, options.checkpoint_of(cell))):
            for result in _run_network(group, options, shelf, done.seconds):
                if result.scores is None and known.get(result.key, result).scores is not None:
                    continue  # a finished result is worth more than why it cannot be had again
                save_result(result, options.folder)
                known[result.key] = result
    done.results = [known[cell.key] for cell in cells]
    return done


def _run_network(
    cells: list[Cell], options: Options, shelf: DatasetCache, seconds: dict[str, float]
) -> Iterable[Result]:
    """Yield the results of cells that share a network."""
    first = cells[0]
    name = options.checkpoint_of(first)
    try:
        subject = ModelUnderTest(first.model, first.ind, str(options.checkpoint or name), options, shelf)
    except UNAVAILABLE as error:
        yield from _refused(cells, options, error)
        return
    for group in _grouped(cells, lambda cell: cell.ood):
        with subject.clock.lap() as loading:
            try:
                views = subject.load(group[0].ood)
            except UNAVAILABLE as error:
                yield from _refused(group, options, error)
                continue
        subject.fit()
        with subject.clock.lap() as embedding, subject.clock("ood_embedding"):
            for view in views:
                _ = view.outputs
        for cell in group:
            yield from _measured(cell, subject, views, {**loading, **embedding})
    for stage, passed in subject.clock.seconds.items():
        seconds[stage] += passed


def _measured(cell: Cell, subject: ModelUnderTest, views: list[View], shared: dict[str, float]) -> Iterable[Result]:
    try:
        return [measure(cell, subject, views, shared)]
    except MethodFailedError as error:
        return _refused([cell], subject.options, error)


def _refused(cells: list[Cell], options: Options, error: Exception) -> Iterable[Result]:
    sys.stderr.write(f"not run, {len(cells)} cells: {error}\n")
    return [not_run(cell, options, error) for cell in cells]


def _is_finished(cell: Cell, options: Options, result: Result | None) -> bool:
    """Tell whether a result is there already; one of other weights is not to be replaced unasked."""
    if result is None or result.scores is None:
        return False
    if result.checkpoint != options.checkpoint_of(cell):
        raise ValueError(
            f"{options.folder / result.file_name} is a result of the checkpoint {result.checkpoint}, not of "
            f"{options.checkpoint_of(cell)}: give another --out, or --force to replace it"
        )
    wants_scores = options.keep_scores and result.scores.plus_pnml is not None
    if wants_scores and not saved_scores_path(result, options.folder).exists():
        return False
    return cell.ood not in NOISE or len(result.seeds) >= options.noise_seeds


def _grouped(cells: Iterable[Cell], key: Callable[[Cell], Hashable]) -> Iterable[list[Cell]]:
    """Put cells with the same key together, in the order in which the keys appear."""
    groups: dict[Hashable, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return groups.values()
