"""Running the benchmark cell by cell; a killed run continues where it stopped."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pnml_bench.methods import MethodFailedError
from pnml_bench.model_under_test import DatasetCache, ModelUnderTest, full_precision
from pnml_bench.own.benchmark import OwnModelUnderTest
from pnml_bench.protocol import NOISE
from pnml_bench.record import UNAVAILABLE, measure, not_run
from pnml_bench.results import Result, Run, start_run
from pnml_bench.saved_scores import keeps_scores, saved_scores_path
from pnml_bench.store import ResultStore

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from pnml_bench.methods import View
    from pnml_bench.options import Options
    from pnml_bench.protocol import Cell


@dataclass
class Outcome:
    """What a run found.

    Attributes:
        results: of every cell in order, one a variant.
        finished_before: how many of them an earlier run had measured.
        seconds: of every stage, each counted once.
    """

    results: list[Result] = field(default_factory=list)
    finished_before: int = 0
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


def run(cells: Iterable[Cell], options: Options) -> Outcome:
    """Run cells, except those that are finished, and write each result when it is known.

    Networks and image sets that are absent and methods that fail do not stop the run: their cells get a result with
    the reason, and are tried again the next time.

    Args:
        cells: what to run, from :func:`pnml_bench.protocol.plan` or :func:`pnml_bench.protocol.paper_plan`.
        options: how.
    """
    cells = list(cells)
    store, this_run = ResultStore(options.out), start_run(options.command, options.device_name)
    stored = store.load() if store.cells.is_file() else []
    known = {(result.study, result.key): result for result in stored}
    planned = [(cell, options.study_of(variant)) for cell in cells for variant in options.variants(cell.method)]
    unfinished = {
        cell
        for cell, study in planned
        if options.force or not _is_finished(cell, options, known.get((study, cell.key)))
    }
    waiting = [cell for cell in cells if cell in unfinished]
    outcome, cache, measured = Outcome(), DatasetCache(options.limit), set()
    with full_precision():
        for group in _grouped(waiting, lambda cell: (cell.model, cell.ind, options.checkpoint_of(cell))):
            for result in _run_network(group, options, cache, this_run, outcome.seconds):
                key = result.study, result.key
                if result.scores is None and known.get(key, result).scores is not None:
                    continue  # keep the finished result
                store.append(result)
                known[key] = result
                measured.add(key)
    outcome.results = [known[study, cell.key] for cell, study in planned]
    finished = [result for result in outcome.results if result.scores is not None]
    outcome.finished_before = sum((result.study, result.key) not in measured for result in finished)
    return outcome


def _run_network(
    cells: list[Cell], options: Options, cache: DatasetCache, this_run: Run, seconds: dict[str, float]
) -> Iterable[Result]:
    """Yield the results of cells that share a network."""

    def unavailable(cells: list[Cell], error: Exception) -> list[Result]:
        sys.stderr.write(f"not run, {len(cells)} cell{'' if len(cells) == 1 else 's'}: {error}\n")
        return [
            not_run(cell, variant, options, this_run, error)
            for cell in cells
            for variant in options.variants(cell.method)
        ]

    forgiven = UNAVAILABLE if options.own is None else ()  # without one's own network there is nothing to run
    try:
        model = _model_under_test(cells, options, cache)
    except forgiven as error:
        yield from unavailable(cells, error)
        return
    for group in _grouped(cells, lambda cell: cell.ood):
        try:
            with model.clock.lap() as loading:
                views: list[View] = model.load(group[0].ood)
        except UNAVAILABLE as error:
            yield from unavailable(group, error)
            continue
        model.fit()
        with model.clock.lap() as embedding, model.clock("ood_embedding"):
            for view in views:
                model.embed(view)
        for cell in group:
            try:
                for variant in options.variants(cell.method):
                    yield measure(cell, variant, model, views, shared={**loading, **embedding}, run=this_run)
            except MethodFailedError as error:  # noqa: PERF203
                yield from unavailable([cell], error)
    for stage, passed in model.clock.seconds.items():
        seconds[stage] += passed


def _model_under_test(cells: list[Cell], options: Options, cache: DatasetCache) -> ModelUnderTest:
    """Load the network that cells share, and its in-distribution sets."""
    with_features = any(options.methods[cell.method].needs_features for cell in cells)
    if options.own is not None:
        return OwnModelUnderTest(options.own, options, with_features=with_features)
    first = cells[0]
    weights = str(options.checkpoint or options.checkpoint_of(first))
    return ModelUnderTest(first.model, first.ind, weights, options, cache, with_features=with_features)


def _is_finished(cell: Cell, options: Options, result: Result | None) -> bool:
    """Return whether a cell has a result already; raise if it was measured with other weights."""
    if result is None or result.scores is None:
        return False
    if result.checkpoint != options.checkpoint_of(cell):
        raise ValueError(
            f"{options.out} has a result of {result.cell_id} with the checkpoint {result.checkpoint}, not with "
            f"{options.checkpoint_of(cell)}: give another --results or --study, or --force to replace it"
        )
    if changed := _changes(result.settings.get("own", {}), options.own_record(cell)):
        if changed <= {"file", "method"}:
            return False  # code is changed to be measured again
        raise ValueError(
            f"{options.out} has a result of {result.cell_id} with another {' and '.join(sorted(changed))}: give "
            "another --results or --study, or --force to replace it"
        )
    wants_scores = options.keep_scores and keeps_scores(options.methods[cell.method])
    if wants_scores and not saved_scores_path(result, options.out).exists():
        return False
    return cell.ood not in NOISE or len(result.seeds) >= options.noise_seeds


def _changes(before: dict[str, Any], now: dict[str, Any]) -> set[str]:
    """Return which parts of what is one's own differ between two records."""
    before, now = ({**record, **record.get("sets", {})} for record in (before, now))
    return {name for name in {*before, *now} - {"sets"} if before.get(name) != now.get(name)}


def _grouped(cells: Iterable[Cell], key: Callable[[Cell], Hashable]) -> Iterable[list[Cell]]:
    """Return lists of the cells with equal keys, in the order in which the keys appear."""
    groups: dict[Hashable, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return groups.values()
