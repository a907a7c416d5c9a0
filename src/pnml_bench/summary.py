"""The results of a run as lines of text, beside the paper's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml.report.labels import label
from pnml_bench.paper import paper_cells

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pnml_bench.results import Result

COLUMNS = ("OOD", "Method", "Ours", "Paper", "Difference")
NONE = "–"
"""What stands where there is no number."""


def summary(results: Iterable[Result]) -> dict[str, list[tuple[str, ...]]]:
    """Return a line of ``COLUMNS`` for each result, by network and in-distribution set, and by study if there are some.

    The numbers are AUROC in percent, alone / with pNML; a dash stands where there is none.

    >>> from pnml.metrics import evaluate
    >>> from pnml_bench.results import Result, Scores
    >>> scores = Scores(evaluate([1, 2, 4], [3, 5]), plus_pnml=evaluate([1, 2, 3], [4, 5]))
    >>> summary([Result(model="densenet-bc-100", ind="cifar10", ood="svhn", method="baseline", scores=scores)])
    {'DenseNet-BC-100, CIFAR-10': [('SVHN', 'Baseline', '83.3 / 100.0', '89.9 / 98.4', '-6.6 / +1.6')]}
    """
    paper = {cell.key: cell for cell in paper_cells() if cell.metric == "auroc"}
    tables: dict[str, list[tuple[str, ...]]] = {}
    results = list(results)
    several = len({result.study for result in results}) > 1
    for result in results:
        if result.scores is None:
            continue
        alone, composed = result.scores.method.auroc, result.scores.plus_pnml
        model, ind, ood, method = map(label, result.key)
        theirs, difference = NONE, NONE
        ours = f"{alone:.1f} / {NONE if composed is None else f'{composed.auroc:.1f}'}"
        if (printed := paper.get(result.key)) and composed is not None:
            theirs = f"{printed.alone:.1f} / {printed.plus_pnml:.1f}"
            difference = f"{alone - printed.alone:+.1f} / {composed.auroc - printed.plus_pnml:+.1f}"
        line = (ood, method, ours, theirs, difference)
        tables.setdefault(f"{model}, {ind}" + (f", study {result.study}" if several else ""), []).append(line)
    return tables


def absent(results: Iterable[Result]) -> list[str]:
    """Return lines that name every cell that was not run and why, those with the same reason together.

    >>> from pnml_bench.results import Result
    >>> cells = [("isun", "odin"), ("isun", "gram"), ("svhn", "odin"), ("svhn", "gram")]
    >>> why = {"model": "resnet-34", "ind": "cifar10", "reason": "checkpoint absent"}
    >>> absent([Result(ood=ood, method=method, **why) for ood, method in cells])
    ['ResNet-34, CIFAR-10 against iSUN, SVHN with ODIN, Gram: checkpoint absent']
    """
    methods: dict[tuple[str, str, str, str], list[str]] = {}
    for result in results:
        if result.reason is not None:
            model, ind, ood, method = map(label, result.key)
            methods.setdefault((result.reason, model, ind, ood), []).append(method)
    against: dict[tuple[str, str, str, str], list[str]] = {}
    for (reason, model, ind, ood), names in methods.items():
        against.setdefault((reason, model, ind, ", ".join(names)), []).append(ood)
    return [
        f"{model}, {ind} against {', '.join(oods)} with {names}: {reason}"
        for (reason, model, ind, names), oods in against.items()
    ]


def counted(results: Sequence[Result], finished_before: int) -> str:
    """Return how many cells a run has measured, took over from earlier runs, and has not run.

    >>> from pnml_bench.results import Result
    >>> counted([Result(model="resnet-34", ind="cifar10", ood="isun", method="odin", reason="data absent: iSUN")], 0)
    '1 cell: 0 run, 1 not run.'
    """
    total, measured = len(results), sum(result.scores is not None for result in results)
    earlier = f" {finished_before} finished before (--force runs them again)," if finished_before else ""
    cells = "1 cell" if total == 1 else f"{total} cells"
    return f"{cells}: {measured - finished_before} run,{earlier} {total - measured} not run."


def accuracies(results: Iterable[Result]) -> list[str]:
    """Return how well each network classifies its test set: one without its weights is noticed by that.

    >>> from pnml_bench.results import Result
    >>> cell = {"model": "mine-create", "ind": "photos", "ood": "other", "method": "odin", "reason": "failed"}
    >>> accuracies([Result(accuracy=10.04, **cell)])
    ['mine-create classifies 10.0% of the test samples of photos correctly']
    """
    found = [
        f"{label(result.model)} classifies {result.accuracy:.1f}% of the test samples of {label(result.ind)} correctly"
        for result in results
        if result.accuracy is not None
    ]
    return list(dict.fromkeys(found))


def notes(results: Iterable[Result]) -> list[str]:
    """Return what a reader of the results should know about their images, each thing once.

    >>> from pnml.metrics import evaluate
    >>> from pnml_bench.results import Result, Scores
    >>> about = {"notes": {"train": "20,000 of the 73,257 published images"}}
    >>> scores = Scores(evaluate([1], [2]))
    >>> notes([Result(model="resnet-34", ind="svhn", ood="isun", method="odin", scores=scores, settings=about)])
    ['SVHN (training set): 20,000 of the 73,257 published images']
    """
    found = []
    for result in results:
        _, ind, ood, _ = map(label, result.key)
        names = {"train": f"{ind} (training set)", "ind": ind, "ood": ood}
        found += [f"{names[part]}: {note}" for part, note in result.settings.get("notes", {}).items()]
    return list(dict.fromkeys(found))


def reversed_scores(results: Iterable[Result], methods: Iterable[str]) -> list[str]:
    """Return lines that name those of some methods that take every OOD set for less out-of-distribution.

    >>> from pnml.metrics import evaluate
    >>> from pnml_bench.results import Result, Scores
    >>> network = {"model": "mine-create", "ind": "photos", "method": "mine-detector"}
    >>> reversed_scores([Result(ood="other", scores=Scores(evaluate([3, 4], [1, 2])), **network)], ["mine-detector"])
    ['mine-detector has an AUROC below 50 on every set: a larger score has to mean more out-of-distribution']
    """
    found: dict[str, list[float]] = {name: [] for name in methods}
    for result in results:
        if result.method in found and result.scores is not None:
            found[result.method].append(result.scores.method.auroc)
    return [
        f"{name} has an AUROC below 50 on every set: a larger score has to mean more out-of-distribution"
        for name, aurocs in found.items()
        if aurocs and max(aurocs) < 50
    ]


def timing(seconds: Mapping[str, float]) -> str:
    """Return the share of every stage in words.

    >>> timing({"ood_embedding": 9.9, "regret": 0.1})
    '10.0 s: ood_embedding 99.0 %, regret 1.0 %'
    """
    total = sum(seconds.values())
    shares = sorted(seconds.items(), key=lambda stage: -stage[1])
    return f"{total:.1f} s: " + ", ".join(f"{name} {100 * passed / total:.1f} %" for name, passed in shares)
