"""One table per network: the mean AUROC of each method on near and far sets, and what it costs.

*Near* is the set of the same kind of pictures with other classes: CIFAR-100 for a network trained on CIFAR-10, the
other way round, and ImageNet's other classes for TinyImageNet. All other sets are *far*. The AUROC is that of the
method alone; with pNML it is in the paper's tables. Methods that need no OOD data come first.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from pnml.report.labels import label
from pnml_bench.layout import markdown_table
from pnml_bench.ood_data import needs_no_ood_data

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pnml_bench.results import Result

NEAR = {
    "cifar10": ("cifar100",),
    "cifar100": ("cifar10",),
    "cifar10-even": ("cifar10-odd",),
    "tinyimagenet": ("imagenet-others",),
}
"""The near-OOD sets of each in-distribution set; the others have none."""

COLUMNS = ("Method", "Needs no OOD data", "Near", "Far", "All", "Seconds", "Memory")
_NONE = "–"


@dataclass(frozen=True)
class Standing:
    """One method on one network: mean AUROCs in percent, and what it costs on top of the embeddings.

    Attributes:
        method: as ``pnml bench --method`` names it.
        needs_no_ood_data: whether no hyper-parameter of it has to be chosen on OOD data.
        near, far, overall: means over the near, far and all sets of the board; None where the method lacks one of them
            or there are none, for a mean over other sets is not comparable.
        seconds: to fit it and to score the in-distribution set and one OOD set, on average.
        memory: MiB at the peak of that, beyond the network and the embeddings.
        other_device: the kind of device it computes on, where that is not the network's.
    """

    method: str
    needs_no_ood_data: bool = True
    near: float | None = None
    far: float | None = None
    overall: float | None = None
    seconds: float | None = None
    memory: float | None = None
    other_device: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of ``COLUMNS``."""
        memory = _NONE if self.memory is None else f"{self.memory:,.1f} MiB"
        return (
            self.method,
            "yes" if self.needs_no_ood_data else "no",
            *(_NONE if mean is None else f"{mean:.1f}" for mean in (self.near, self.far, self.overall)),
            _NONE if self.seconds is None else f"{self.seconds:.3f}",
            f"{memory} ({self.other_device})" if self.other_device else memory,
        )


@dataclass(frozen=True)
class Board:
    """The methods on one network: those that need no OOD data first, then by the mean over all sets, the best first."""

    title: str
    near: tuple[str, ...]
    far: tuple[str, ...]
    standings: tuple[Standing, ...]
    notes: tuple[str, ...]

    @property
    def caption(self) -> str:
        """What the columns mean."""
        near, far = (", ".join(map(label, sets)) or "none" for sets in (self.near, self.far))
        return (
            f"Mean AUROC in percent. Near: {near}. Far: {far}. Methods with a hyper-parameter to be chosen on OOD data "
            "come last; here it has a fixed value. Seconds to fit and to score both sets of a pair, and memory at the "
            "peak of that, on top of the embeddings and features of earlier layers that methods share."
        )


def leaderboard(results: Iterable[Result]) -> list[Board]:
    """Return a board for every network, that is model, in-distribution set and checkpoint, with methods to compare.

    Its sets are those on which any of its methods has a result.

    >>> from pnml.metrics import evaluate
    >>> from pnml_bench.results import Result, Scores
    >>> network = {"model": "densenet-bc-100", "ind": "cifar10", "seconds": {"score": 0.5}}
    >>> scores = Scores(evaluate([1, 2, 4], [3, 5])), Scores(evaluate([1, 2, 3], [4, 5]))
    >>> results = [Result(method="knn", ood="cifar100", scores=scores[0], **network)]
    >>> results += [Result(method="knn", ood="svhn", scores=scores[1], **network)]
    >>> results += [Result(method="gen", ood="svhn", scores=scores[0], **network)]
    >>> (board,) = leaderboard(results)
    >>> for standing in board.standings:
    ...     print(standing.texts)
    ('knn', 'yes', '83.3', '100.0', '91.7', '0.500', '–')
    ('gen', 'yes', '–', '83.3', '–', '0.500', '–')
    >>> board.title, board.notes
    ('DenseNet-BC-100, CIFAR-10', ('gen, CIFAR-100: no result',))
    """
    networks: dict[tuple[str, str, str | None], list[Result]] = defaultdict(list)
    for result in results:
        networks[result.model, result.ind, result.checkpoint].append(result)
    return [
        _board(*network, found)
        for network, found in networks.items()
        if len({result.method for result in found}) > 1 and any(result.scores for result in found)
    ]


def render_leaderboard(boards: Sequence[Board]) -> str:
    """Write boards as Markdown that also reads well as plain text."""
    blocks = []
    for board in boards:
        grid = [COLUMNS, *(standing.texts for standing in board.standings)]
        blocks += [f"### {board.title}", board.caption, markdown_table(grid)]
        blocks += ["\n".join(f"- {note}" for note in board.notes).replace("<", "\\<")] if board.notes else []
    return "\n\n".join(blocks) + "\n"


def _board(model: str, ind: str, checkpoint: str | None, results: list[Result]) -> Board:
    title = f"{label(model)}, {label(ind)}"
    if checkpoint not in {None, f"{model}_{ind}"}:
        title += f", {checkpoint}"
    oods = list(dict.fromkeys(result.ood for result in results if result.scores))
    near = tuple(ood for ood in oods if ood in NEAR.get(ind, ()))
    far = tuple(ood for ood in oods if ood not in near)
    methods: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        methods[result.method].append(result)
    standings = [_standing(method, found, near, far) for method, found in methods.items()]
    standings.sort(key=lambda one: (not one.needs_no_ood_data, one.overall is None, -(one.overall or 0.0)))
    notes = [note for method, found in methods.items() for note in _notes(method, found, oods)]
    return Board(title, near, far, tuple(standings), tuple(notes))


def _standing(method: str, results: list[Result], near: tuple[str, ...], far: tuple[str, ...]) -> Standing:
    run = [result for result in results if result.scores is not None]
    auroc = {result.ood: result.scores.method.auroc for result in run if result.scores is not None}

    def mean(sets: tuple[str, ...]) -> float | None:
        return fmean(auroc[ood] for ood in sets) if sets and auroc.keys() >= set(sets) else None

    memory = [result.memory_bytes / 2**20 for result in run if result.memory_bytes is not None]
    devices = {result.memory_device for result in run if not result.run.device.startswith(f"{result.memory_device}:")}
    return Standing(
        method,
        needs_no_ood_data=needs_no_ood_data(method),
        near=mean(near),
        far=mean(far),
        overall=mean((*near, *far)),
        seconds=fmean(_seconds(result) for result in run) if run else None,
        memory=max(memory, default=None),
        other_device=min((device for device in devices if device), default=None),
    )


def _seconds(result: Result) -> float:
    return result.seconds.get("method_fit", 0.0) + result.seconds.get("score", 0.0)


def _notes(method: str, results: list[Result], oods: list[str]) -> list[str]:
    """Return on which sets a method has no result, and why, those with the same reason together."""
    known = {result.ood: result for result in results}
    sets: dict[str, list[str]] = defaultdict(list)
    for ood in oods:
        result = known.get(ood)
        if result is None or result.scores is None:
            sets[(result and result.reason) or "no result"].append(label(ood))
    return [f"{method}, {', '.join(names)}: {' '.join(reason.split())}" for reason, names in sets.items()]
