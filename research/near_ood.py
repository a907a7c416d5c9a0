"""Compare lengths of the embeddings: ``python research/near_ood.py embeddings/*.safetensors``.

Adds every network to near-ood.json and writes the table of near-ood.md. With ``--picture`` it draws
docs/images/near-ood.png of the files instead. The files are those of ``embeddings.py`` and ``image_networks.py``.

A candidate takes a :class:`Study` and returns a function from rows to scores that grow with OOD-ness. It may use
the training rows (each with its leave-one-out leverage) and the head: no OOD data, no number for a user to choose.
"""

from __future__ import annotations

import argparse
import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from image_networks import OTHER
from records import replace_table, write_record
from safetensors import safe_open
from scipy.special import logsumexp

from pnml.core import theorem
from pnml.core.correlation import Correlation
from pnml.core.scaling import balanced_length
from pnml.core.subspace import Subspace, leave_one_out, xtg
from pnml.metrics import auroc
from pnml.report.labels import label
from pnml_bench.leaderboard import NEAR

if TYPE_CHECKING:
    Floats = np.ndarray
    from collections.abc import Callable, Sequence

    Score = Callable[["Rows"], Floats]
    Candidate = Callable[["Study"], Score]


class Study:
    """A network: its training statistics, of the whole training set, and the rows that ``embeddings.py`` kept."""

    def __init__(self, path: Path) -> None:
        with safe_open(path, "np") as file:
            held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        self.held, self.name, self.ind = held, path.stem, path.stem.split("_")[1]
        self.weight, self.bias = held["weight"].astype(float), held["bias"].astype(float)
        self.count, self.mean_norm = len(held["norms"]), float(held["norms"].astype(float).mean())
        self.train = Rows(self, held["train"], seen=True)
        self.test = Rows(self, held["test"])
        self.oods = {name.removeprefix("ood/"): Rows(self, x) for name, x in held.items() if name.startswith("ood/")}

    @property
    def labels(self) -> Floats:
        """Of the training rows."""
        return self.held["train_labels"]

    @cached_property
    def unit(self) -> Subspace:
        """Of embeddings scaled to norm 1."""
        return self._subspace(self.held["correlation/unit"])

    @cached_property
    def raw(self) -> Subspace:
        """Of embeddings as they are."""
        return self._subspace(self.held["correlation/raw"])

    @cached_property
    def unit_bias(self) -> Subspace:
        """Of embeddings scaled to norm 1 with a coordinate of 1 for the bias."""
        return self._subspace(self._with_bias("unit"))

    @cached_property
    def raw_bias(self) -> Subspace:
        """Of embeddings as they are with a coordinate of 1 for the bias."""
        return self._subspace(self._with_bias("raw"))

    def _with_bias(self, kind: str) -> Floats:
        total = self.held[f"sum/{kind}"]
        return np.block(
            [[self.held[f"correlation/{kind}"], total[:, None]], [total[None], np.full((1, 1), self.count)]]
        )

    def _subspace(self, matrix: Floats) -> Subspace:
        return Subspace.fit(Correlation.restore(matrix, self.count, float(self.count)))


class Rows:
    """Rows of one network; those of the training set are scored as if they had not been seen."""

    def __init__(self, study: Study, x: Floats, *, seen: bool = False) -> None:
        self.study, self.seen = study, seen
        self.x = x.astype(float)
        self.norm = np.linalg.norm(self.x, axis=1)
        self.direction = self.x / self.norm[:, None]
        self.projected = self.direction @ study.weight.T
        self.logits = self.projected * self.norm[:, None] + study.bias

    @cached_property
    def h(self) -> Floats:
        """Leverage of the directions."""
        return self._leverage(self.study.unit, self.direction)

    @cached_property
    def h_raw(self) -> Floats:
        """Leverage of the rows as they are."""
        return self._leverage(self.study.raw, self.x)

    @cached_property
    def h_unit_bias(self) -> Floats:
        """Leverage of the directions with a bias coordinate."""
        return self._leverage(self.study.unit_bias, np.pad(self.direction, ((0, 0), (0, 1)), constant_values=1.0))

    @cached_property
    def h_raw_bias(self) -> Floats:
        """Leverage of the rows as they are with a bias coordinate."""
        return self._leverage(self.study.raw_bias, np.pad(self.x, ((0, 0), (0, 1)), constant_values=1.0))

    def _leverage(self, subspace: Subspace, rows: Floats) -> Floats:
        h = subspace.leverage(rows)
        return leave_one_out(h, subspace.relative_error) if self.seen else h

    def log_p(self, length: float | Floats) -> Floats:
        """Log-probabilities of the directions at a length, one for all or one for each."""
        lengths = np.broadcast_to(length, self.norm.shape)[:, None]
        return theorem.log_softmax(self.projected * lengths + self.study.bias)

    def regret(self, length: float | Floats, h: Floats | None = None) -> Floats:
        """The regret at a length; leverage does not change when all embeddings are scaled alike."""
        return theorem.regret(self.log_p(length), xtg(self.h if h is None else h), log=True)


HERE = Path(__file__).parent
GRID = 2.0 ** np.arange(-6, 3.01, 0.125)  # lengths that are searched, as fractions of the mean training norm
OCTAVES = (1 / 8, 1 / 4, 1 / 2, 1)


def entropy(log_p: Floats) -> Floats:
    return -(np.exp(log_p) * log_p).sum(1)


def doubt(log_p: Floats) -> Floats:
    """What the regret is per unit of small xᵀg: Σ p (1 − p) log(1/p)."""
    return (np.exp(log_p) * -np.expm1(log_p) * -np.maximum(log_p, -700)).sum(1)


def at(fraction: float) -> Candidate:
    return lambda study: lambda rows: rows.regret(fraction * study.mean_norm)


def best(value: Callable[[Study, Floats], float]) -> Candidate:
    """The length at which a function of p on the training rows is largest."""

    def make(study: Study) -> Score:
        length = max((f * study.mean_norm for f in GRID), key=lambda at: value(study, study.train.log_p(at)))
        return lambda rows: rows.regret(length)

    return make


def entropy_left(share: float) -> Candidate:
    return best(lambda study, log_p: -abs(entropy(log_p).mean() / np.log(len(study.bias)) - share))


def log_loss_of_q(study: Study, log_p: Floats) -> float:
    q = theorem.predictive(log_p, xtg(study.train.h), log=True)
    return float(np.log(q[np.arange(len(q)), study.labels] + 1e-300).mean())


def log_loss_of_p(study: Study, log_p: Floats) -> float:
    return float(log_p[np.arange(len(log_p)), study.labels].mean())


def as_wide_as_leverage(study: Study, log_p: Floats) -> float:
    return -abs(np.log(doubt(log_p) + 1e-300).std() - np.log(xtg(study.train.h)).std())


def falls_fastest(study: Study) -> Score:
    """The length at which the mean entropy falls fastest with the logarithm of the length."""
    curve = np.array([entropy(study.train.log_p(f * study.mean_norm)).mean() for f in GRID])
    length = GRID[np.argmin(np.gradient(curve))] * study.mean_norm
    return lambda rows: rows.regret(length)


def own_norm(fraction: float, leverage: str) -> Candidate:
    return lambda _study: lambda rows: rows.regret(fraction * rows.norm, getattr(rows, leverage))


def with_leverage(share: float, leverage: str) -> Candidate:
    """The length of :func:`entropy_left` with another leverage."""

    def make(study: Study) -> Score:
        length = _length(study, share)
        return lambda rows: rows.regret(length, getattr(rows, leverage))

    return make


def _length(study: Study, share: float) -> float:
    shares = [entropy(study.train.log_p(f * study.mean_norm)).mean() / np.log(len(study.bias)) for f in GRID]
    return float(GRID[np.argmin(np.abs(np.array(shares) - share))] * study.mean_norm)


def of_the_class(study: Study) -> Score:
    """Half the mean norm of the training rows of the predicted class."""
    predicted = study.train.logits.argmax(1)
    means = np.array([study.train.norm[predicted == c].mean() for c in range(len(study.bias))])
    return lambda rows: rows.regret(means[rows.logits.argmax(1)] / 2)


def temperature(value: Callable[[Study, Floats], float]) -> Candidate:
    """Regrets of the network's own logits divided by a temperature, bias and all, chosen on the training rows."""

    def make(study: Study) -> Score:
        inverse = max(GRID, key=lambda at: value(study, theorem.log_softmax(at * study.train.logits)))
        return lambda rows: theorem.regret(theorem.log_softmax(inverse * rows.logits), xtg(rows.h), log=True)

    return make


def mean_of(fractions: Sequence[float]) -> Candidate:
    return lambda study: lambda rows: np.mean([rows.regret(f * study.mean_norm) for f in fractions], axis=0)


def mean_log_of(fractions: Sequence[float]) -> Candidate:
    return lambda study: lambda rows: np.mean([np.log(rows.regret(f * study.mean_norm)) for f in fractions], axis=0)


def union(fractions: Sequence[float]) -> Candidate:
    """One learner for all lengths: each class gets its best genie of any of them."""

    def make(study: Study) -> Score:
        def score(rows: Rows) -> Floats:
            genies = [theorem.genie(rows.log_p(f * study.mean_norm), xtg(rows.h), log=True) for f in fractions]
            return np.log(np.max(genies, axis=0).sum(1))

        return score

    return make


def standardised(fractions: Sequence[float]) -> Candidate:
    def make(study: Study) -> Score:
        lengths = [f * study.mean_norm for f in fractions]
        base = [study.train.regret(length) for length in lengths]
        pairs = list(zip(lengths, base, strict=True))
        return lambda rows: np.sum([(rows.regret(length) - b.mean()) / b.std() for length, b in pairs], axis=0)

    return make


def p_values(fractions: Sequence[float], combine: Callable[[Floats], Floats]) -> Candidate:
    """Leave-one-out p-values of the regret at several lengths, combined; a small p-value is a large score."""

    def make(study: Study) -> Score:
        lengths = [f * study.mean_norm for f in fractions]
        base = [np.sort(study.train.regret(length)) for length in lengths]

        def score(rows: Rows) -> Floats:
            as_large = [
                len(b) - np.searchsorted(b, rows.regret(length)) for length, b in zip(lengths, base, strict=True)
            ]
            return combine((np.stack(as_large) + 1) / (len(base[0]) + 1))

        return score

    return make


def knn(study: Study) -> Score:
    def score(rows: Rows) -> Floats:
        parts = np.array_split(rows.direction, max(1, len(rows.x) // 500))
        return np.concatenate([-np.partition(p @ study.train.direction.T, -50, axis=1)[:, -50] for p in parts])

    return score


def vim(study: Study) -> Score:
    """Virtual-logit matching; the subspace from the whole training set, half of its directions in it."""
    origin, n = -np.linalg.pinv(study.weight) @ study.bias, study.count
    cross = np.outer(study.held["sum/raw"], origin)
    scatter = study.held["correlation/raw"] - cross - cross.T + n * np.outer(origin, origin)
    residual = np.linalg.eigh(scatter)[1][:, : len(scatter) - len(scatter) // 2]
    alpha = study.train.logits.max(1).mean() / np.linalg.norm((study.train.x - origin) @ residual, axis=1).mean()
    return lambda rows: alpha * np.linalg.norm((rows.x - origin) @ residual, axis=1) - logsumexp(rows.logits, axis=1)


CANDIDATES: dict[str, dict[str, Candidate]] = {
    "Peers": {
        "MSP": lambda _: lambda rows: 1 - np.exp(theorem.log_softmax(rows.logits)).max(1),
        "Energy": lambda _: lambda rows: -logsumexp(rows.logits, axis=1),
        "kNN, k = 50": knn,
        "ViM": vim,
    },
    "The paper": {"norm 1": lambda _: lambda rows: rows.regret(1.0), "leverage alone": lambda _: lambda rows: rows.h},
    "A fraction of the mean training norm": {
        name: at(f)
        for name, f in (("1/16", 1 / 16), ("1/8", 1 / 8), ("1/4", 1 / 4), ("1/2", 1 / 2), ("1", 1), ("2", 2))
    },
    "Embeddings as they are": {
        "unscaled": own_norm(1, "h_raw"),
        "unscaled for p, norm 1 for the leverage": own_norm(1, "h"),
        "half their own length": own_norm(0.5, "h_raw"),
        "half their own length for p, norm 1 for the leverage": own_norm(0.5, "h"),
        "half the mean norm of the predicted class": of_the_class,
    },
    "A length from the training set": {
        "least leave-one-out log-loss of q": best(log_loss_of_q),
        "least log-loss of p": best(log_loss_of_p),
        **{f"entropy of p is {share:g} log C": entropy_left(share) for share in (0.05, 0.1, 0.2, 0.25, 0.3, 0.5)},
        "entropy of p varies most": best(lambda _, log_p: entropy(log_p).std()),
        "entropy of p varies as much as it is": best(
            lambda _, lp: -abs(np.log(entropy(lp).std() / entropy(lp).mean()))
        ),
        "entropy of p falls fastest": falls_fastest,
        "doubt varies as much as leverage, in logarithms": best(as_wide_as_leverage),
    },
    "With a bias coordinate, entropy of p 0.25 log C": {
        "norm 1": with_leverage(0.25, "h_unit_bias"),
        "unscaled leverage": with_leverage(0.25, "h_raw"),
        "unscaled leverage with bias": with_leverage(0.25, "h_raw_bias"),
    },
    "Temperature instead of length": {
        "least log-loss of p": temperature(log_loss_of_p),
        "entropy of p is 0.25 log C": temperature(
            lambda study, log_p: -abs(entropy(log_p).mean() / np.log(len(study.bias)) - 0.25)
        ),
    },
    "Several lengths": {
        "mean of 1/4 and 1/2": mean_of((1 / 4, 1 / 2)),
        "mean over (0, 1]": mean_of([(i + 0.5) / 8 for i in range(8)]),
        "mean logarithm over (0, 1]": mean_log_of([(i + 0.5) / 8 for i in range(8)]),
        "one learner for 1/8 to 1": union(OCTAVES),
        "standardised sum, 1/8 to 1": standardised(OCTAVES),
        "p-values, 1/8 to 1, Fisher": p_values(OCTAVES, lambda p: -np.log(p).sum(0)),
        "p-values, 1/8 to 1, Cauchy": p_values(OCTAVES, lambda p: np.tan((0.5 - p) * np.pi).mean(0)),
        "p-values, 1/8 to 1, smallest": p_values(OCTAVES, lambda p: -p.min(0)),
    },
}


RECORD, PAGE = HERE / "near-ood.json", HERE / "near-ood.md"
CHOSEN_ON = ("densenet-bc-100_cifar10", "densenet-bc-100_cifar100")


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    networks = [name for name in next(iter(found.values())) if name not in OTHER]
    networks.sort(key=lambda name: (name not in CHOSEN_ON, name))
    heads = [" ".join(label(part) for part in name.split("_")) for name in networks]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    family = ""
    for name, of_network in found.items():
        group, _, short = name.partition(": ")
        if group != family:
            family = group
            lines.append(f"| **{group}** |" + " |" * len(heads))
        lines.append(f"| {short} | " + " | ".join(cell(network, of_network[network]) for network in networks) + " |")
    return "\n".join(lines) + "\n"


def cell(network: str, aurocs: dict[str, float]) -> str:
    near = NEAR.get(network.split("_")[1], ())
    mean = np.mean(list(aurocs.values()))
    return f"{mean:.1f} ({aurocs[near[0]]:.1f})" if near else f"{mean:.1f}"


PICTURE = HERE.parent / "docs" / "images" / "near-ood.png"
NEAR_COLOUR, FAR_COLOUR, MARK = "#c2410c", "#0f766e", "#475569"


def draw_lengths(files: list[Path]) -> None:
    figure, axes = plt.subplots(1, len(files), figsize=(4.2 * len(files), 3.6), sharey=True, layout="constrained")
    for axis, path in zip(np.atleast_1d(axes), files, strict=True):
        draw(axis, Study(path))
    np.atleast_1d(axes)[0].set_ylabel("AUROC, %")
    figure.savefig(PICTURE, dpi=150)


def draw(axis: plt.Axes, study: Study) -> None:
    near = NEAR[study.ind]
    fractions = 2.0 ** np.arange(-4.5, 2.01, 0.25)
    lines = {"near": [], "far": []}
    for fraction in fractions:
        for kind, value in aurocs(study, lambda rows, at=fraction: rows.regret(at * study.mean_norm), near).items():
            lines[kind].append(value)
    msp = aurocs(study, CANDIDATES["Peers"]["MSP"](study), near)
    for kind, colour in (("near", NEAR_COLOUR), ("far", FAR_COLOUR)):
        name = f"near: {label(near[0])}" if kind == "near" else f"far: mean of {len(study.oods) - 1} sets"
        axis.plot(fractions, lines[kind], color=colour, lw=2, label=name)
        axis.axhline(msp[kind], color=colour, lw=1, ls=":")
    rows, mean = study.held["train"], study.mean_norm
    auto = balanced_length(rows, study.weight, study.bias, mean_norm=mean) / mean
    for at, name in ((1 / study.mean_norm, "paper"), (auto, "auto")):
        axis.axvline(at, color=MARK, lw=1, ls="--" if name == "paper" else "-")
        axis.text(at, 38.5, f" {name}", color=MARK, fontsize=9)
    network, ind = study.name.split("_")
    axis.set(xscale="log", ylim=(37, 101), title=f"{label(network)}, {label(ind)}")
    axis.set_xlabel("length of the embeddings / their mean norm")
    axis.set_xticks([0.06, 0.125, 0.25, 0.5, 1, 2, 4], ["1/16", "1/8", "1/4", "1/2", "1", "2", "4"])
    axis.minorticks_off()
    axis.legend(loc="lower right", bbox_to_anchor=(1, 0.06), fontsize=8, frameon=False)


def aurocs(study: Study, score: Score, near: tuple[str, ...]) -> dict[str, float]:
    inside = score(study.test)
    found = {name: auroc(inside, score(rows)) for name, rows in study.oods.items()}
    return {
        "near": float(np.mean([found[name] for name in near])),
        "far": float(np.mean([value for name, value in found.items() if name not in near])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--picture", action="store_true", help="draw the picture of near-ood.md instead")
    args = parser.parse_args()
    if args.picture:
        draw_lengths(args.files)
        return
    found: dict[str, dict[str, dict[str, float]]] = json.loads(RECORD.read_text(encoding="utf-8"))
    for path in args.files:
        study = Study(path)
        for family, members in CANDIDATES.items():
            for name, candidate in members.items():
                score = candidate(study)
                inside = score(study.test)
                found.setdefault(f"{family}: {name}", {})[study.name] = {
                    ood: auroc(inside, score(rows)) for ood, rows in study.oods.items()
                }
        print(path.stem, flush=True)
    write_record(RECORD, found)
    replace_table(PAGE, "table", table(found))


if __name__ == "__main__":
    main()
