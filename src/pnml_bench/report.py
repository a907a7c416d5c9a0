"""The report of a study: tables of all of its results, charts of those that kept their scores."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pnml.report.labels import label
from pnml.report.model import Report, Table
from pnml.report.tables import METRICS, metrics_by_set
from pnml_bench.leaderboard import NEAR
from pnml_bench.saved_scores import SavedScores, load_scores, saved_scores_path
from pnml_bench.store import load_study
from pnml_bench.summary import absent, notes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from pnml.metrics import Metrics
    from pnml_bench.results import Result


_LEADING = ("pnml", "baseline")  # the default method, and what it is compared with


class Group(NamedTuple):
    """Results that share their charts: network, in-distribution set and method."""

    model: str
    ind: str
    method: str

    def __str__(self) -> str:
        return f"--model {self.model} --ind {self.ind} --method {self.method}"


def charted_groups(results: Iterable[Result], folder: Path) -> list[Group]:
    """Return the groups that kept their scores, those of the default method first, then those of Baseline."""
    found = [result for result in results if result.scores and saved_scores_path(result, folder).exists()]
    groups = dict.fromkeys(Group(result.model, result.ind, result.method) for result in found)
    return sorted(groups, key=lambda group: _rank(group.method))


def choose_results(
    folder: Path,
    study: str | None = None,
    *,
    model: str | None = None,
    ind: str | None = None,
    method: str | None = None,
) -> list[Result]:
    """Read the results of a study, or those of one network, in-distribution set or method."""
    found = load_study(folder, study)
    wanted = {"model": model, "ind": ind, "method": method}
    for part, name in wanted.items():
        known = sorted({getattr(result, part) for result in found})
        if name is not None and name not in known:
            raise ValueError(f"no result of {folder} has the {part} {name!r}: choose from {', '.join(known)}")
        found = [result for result in found if name in {None, getattr(result, part)}]
    return found


def report_of(results: Sequence[Result], folder: Path) -> Report:
    """Return the report of some results.

    Args:
        results: of :func:`choose_results`.
        folder: the folder of the results and their scores. The charts are of the first of :func:`charted_groups`.
    """
    run = [result for result in results if result.scores]
    if not run:
        raise ValueError(f"none of the {len(results)} results in {folder} was run: {'; '.join(absent(results))}")
    groups = charted_groups(results, folder)
    tables = _tables(run)
    if not groups:
        return Report(title="Benchmark results", facts=_facts(results, results), sets=(), tables=tables)
    first = groups[0]
    charted = _charted(run, first, folder)
    scores = list(charted.values())
    of_group = [result for result in run if result.cell_id in charted]
    alone, with_pnml = _score_names(of_group[0])
    report = Report(
        title=f"{label(first.model)}: {label(first.ind)} against out-of-distribution samples",
        facts=_facts(results, of_group),
        sets=(scores[0].ind, *(one.ood for one in scores)),
        class_names=_class_names(first.ind),
        spectrum=scores[0].spectrum,
        baseline_name=alone,
        pnml_name=with_pnml,
    )
    if not _has_recorded_metrics(report, of_group):
        one = "one draw of each set, or one split; the tables below the first hold the means over all"
        return replace(report, tables=tables, facts={**report.facts, "Charts": one})
    return report if len(of_group) == len(run) else replace(report, tables=tables)


def _score_names(result: Result) -> tuple[str, str]:
    """Return what the two scores of a method are called; a regret by itself stands beside the confidence."""
    name = label(result.method)
    if result.scores is not None and result.scores.plus_pnml is None:
        return label("baseline"), name
    return name, "pNML" if result.method == "baseline" else f"{name}+pNML"


def _charted(run: Iterable[Result], group: Group, folder: Path) -> dict[str, SavedScores]:
    """Read the saved scores of a group by cell, only those with the same scores of the in-distribution set.

    An oracle may choose other settings for every OOD set; then each cell has in-distribution scores of its own.
    """
    found: dict[str, SavedScores] = {}
    for result in run:
        path = saved_scores_path(result, folder)
        if (result.model, result.ind, result.method) != group or not path.exists():
            continue
        scores = load_scores(path)
        if (scores.ind.name, scores.ood.name) != (label(result.ind), label(result.ood)):
            raise ValueError(f"{path} holds scores of {scores.ood.name}, not of {label(result.ood)}: delete it")
        first = next(iter(found.values()), scores)
        if all(np.array_equal(getattr(scores.ind, part), getattr(first.ind, part)) for part in ("regret", "baseline")):
            found[result.cell_id] = scores
    return found


def _has_recorded_metrics(report: Report, results: Iterable[Result]) -> bool:
    """Return whether the charts' metrics are the recorded ones, which may be means over draws and splits."""
    found = metrics_by_set(report)
    for result in results:
        own, recorded = found[label(result.ood)], result.scores
        if recorded is None:
            return False
        drawn = (own.pnml, None) if recorded.plus_pnml is None else (own.baseline, own.pnml)
        if drawn != (recorded.method, recorded.plus_pnml):
            return False
    return True


def _rank(method: str) -> int:
    return _LEADING.index(method) if method in _LEADING else len(_LEADING)


def _tables(run: Sequence[Result]) -> tuple[Table, ...]:
    """Return a table of every metric for each network and in-distribution set, the AUROC with a chart."""
    networks: dict[tuple[str, str], list[Result]] = {}
    for result in run:
        networks.setdefault((result.model, result.ind), []).append(result)
    return tuple(
        _table(f"{label(model)}, {label(ind)}: {label(metric)}", metric, NEAR.get(ind, ()), results)
        for (model, ind), results in networks.items()
        for metric in METRICS
    )


def _table(title: str, metric: str, near: Sequence[str], results: Iterable[Result]) -> Table:
    """Return a metric of one network: a row for each OOD set, a column for each score, the default's first."""
    scores: dict[str, dict[str, float]] = {}
    oods: dict[str, None] = {}
    for result in sorted(results, key=lambda result: _rank(result.method)):
        oods[result.ood] = None
        for name, metrics in _metrics(result).items():
            scores.setdefault(name, {})[result.ood] = getattr(metrics, metric)
    groups = {"near": [ood for ood in oods if ood in near], "far": [ood for ood in oods if ood not in near]}
    rows: list[tuple[str | float | None, ...]] = []
    for group, members in groups.items():
        rows += [(label(ood), *(values.get(ood) for values in scores.values())) for ood in members]
        if len(members) > 1:
            name = f"Mean of {group}" if all(groups.values()) else "Mean"
            rows.append((name, *(_mean(values, members) for values in scores.values())))
    is_first = metric == METRICS[0]
    return Table(
        title=title,
        columns=("OOD set", *((label(metric), name) for name in scores)),
        rows=tuple(rows),
        note="In percent. The best of each row is bold.",
        charted=next(iter(scores)) if is_first else "",
        folded=not is_first,
    )


def _metrics(result: Result) -> dict[str, Metrics]:
    """Return the metrics of a method, and those of its regret, by name; the regret leads."""
    name = label(result.method)
    if result.scores is None:
        return {}
    alone = {name: result.scores.method}
    return alone if result.scores.plus_pnml is None else {f"{name}+pNML": result.scores.plus_pnml, **alone}


def _mean(values: Mapping[str, float], oods: Sequence[str]) -> float | None:
    """Return the mean over some OOD sets, None if one of them was not measured."""
    return float(np.mean([values[ood] for ood in oods])) if values.keys() >= set(oods) else None


def _facts(results: Sequence[Result], shown: Sequence[Result]) -> dict[str, str]:
    """Return what was run and how, from the results shown."""
    first = shown[0]
    count = sum(result.scores is not None for result in results)
    facts = {"Networks": _listed(label(result.model) for result in shown)}
    is_one_network = len({(result.model, result.ind) for result in shown}) == 1
    if is_one_network and first.accuracy is not None:
        facts["Test accuracy"] = f"{first.accuracy:.1f}% on {label(first.ind)}"
    facts["Results"] = f"{count} run, {len(results) - count} not run"
    facts["Date"] = _listed(sorted({result.date[:10] for result in shown}))
    if is_one_network and "train" in first.counts:
        facts["Detector"] = f"fitted on {first.counts['train']:,} samples, rank {first.rank}"
    facts["Checkpoint"] = _listed(result.checkpoint or "" for result in shown)
    facts["Command"] = first.command + (" and others" if len(shown) > 1 else "")
    facts["Device"] = _listed(result.run.device for result in shown)
    facts["Versions"] = ", ".join(f"{name} {version}" for name, version in first.run.versions.items())
    facts["Images"] = "; ".join(notes(shown))
    facts["Not run"] = "; ".join(absent(results))
    return {name: text for name, text in facts.items() if text}


def _class_names(ind: str) -> tuple[str, ...]:
    known = json.loads(files("pnml.report").joinpath("class_names.json").read_text(encoding="utf-8"))
    return tuple(known.get(ind, ()))


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))
