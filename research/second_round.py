"""Compare scores beyond the length: ``python research/second_round.py FILES --study confirm --study other``.

The files are those of ``embeddings.py``, ``image_networks.py`` and ``independent.py train``. The AUROCs of the peers on
the same files come from research/results/cells.csv, where a later study replaces an earlier one on a network, and from
independent.json. Writes second-round.json and the table of second-round.md.

Files of images have sums over the whole training set beside the rows that were kept; those of ``independent.py`` have
the rows alone. Test and OOD rows are handled as one array, which is split to compute AUROCs.

A candidate returns scores of the new rows of a :class:`Network`; they grow with OOD-ness. It may use the training rows,
their labels and the head: no OOD data and no test data. A candidate that is not a regret is xᵀg times the doubt
Σ p (1 − p) log(1/p), which the regret approaches where xᵀg is small.
"""

from __future__ import annotations

import argparse
import json
import math
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from records import replace_table, write_record
from safetensors import safe_open

from pnml import Correlation, Detector
from pnml.backend.progress import track
from pnml.core import theorem
from pnml.core.sample import RowSample
from pnml.core.scaling import ENTROPY_LEFT
from pnml.core.subspace import Subspace, leave_one_out, xtg
from pnml.metrics import auroc
from pnml_bench.environment import environment
from pnml_bench.leaderboard import NEAR
from pnml_bench.methods import GROUPS, REGRETS
from pnml_bench.results import current_time
from pnml_bench.store import load_study

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Means = tuple[float | None, float, float]  # AUROC near (None without a near set), far, and the mean
    Candidate = Callable[["Network"], Floats]
    Leverage = Callable[["Rows"], Floats]
    Aurocs = dict[str, dict[str, float]]  # of each method on each OOD set


class Network:
    """A network: its head, the geometry of its training set, and the rows to tell apart."""

    def __init__(self, path: Path) -> None:
        with safe_open(path, "np") as file:
            held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        self.name, self.whole = path.stem, "norms" in held
        self.kind = "image" if self.whole else "linear" if "linear" in path.stem else "hidden"
        self.weight, self.bias = held["weight"].astype(float), held["bias"].astype(float)
        self.labels: NDArray[np.int64] = held["train_labels"]
        sets = {"test": held["test"], **{n.removeprefix("ood/"): x for n, x in held.items() if n.startswith("ood/")}}
        ends = np.cumsum([len(x) for x in sets.values()])
        self.parts = {name: slice(end - len(x), end) for (name, x), end in zip(sets.items(), ends, strict=True)}
        near = NEAR.get(path.stem.rpartition("_")[2], ())
        self.near = [name for name in sets if name.startswith("near/") or name in near]
        self.far = [name for name in sets if name not in {"test", *self.near}]
        self.stored = np.concatenate(list(sets.values()))
        self.train, self.new = Rows(self, held["train"], seen=True), Rows(self, self.stored)
        self.sample = RowSample.of(held["train"])
        self._lengths: dict[float, float] = {}
        norms = held["norms"].astype(float) if self.whole else self.train.norm
        self.count, self.mean_norm = len(norms), float(norms.mean())
        self.sums = {
            kind: (held[f"correlation/{kind}"], held[f"sum/{kind}"])
            if self.whole
            else (rows.T @ rows, rows.sum(axis=0))
            for kind, rows in (("unit", self.train.direction), ("raw", self.train.x))
        }

    @cached_property
    def detector(self) -> Detector:
        """The package's own, fitted on the sums; its length is solved for on a sample of the rows that were kept."""
        total = self.count * self.mean_norm
        statistic = Correlation.restore(self.sums["unit"][0], self.count, total, unit_norm=True, sample=self.sample)
        return Detector(self.weight, self.bias).merge(statistic)

    @property
    def unit(self) -> Subspace:
        """Of embeddings scaled to norm 1."""
        return self.detector.subspace

    @cached_property
    def raw(self) -> Subspace:
        """Of embeddings as they are."""
        return subspace(self.sums["raw"][0], self.count)

    @cached_property
    def centred(self) -> Subspace:
        """Of embeddings of norm 1 less their mean."""
        matrix, total = self.sums["unit"]
        return subspace(matrix - np.outer(total, total) / self.count, self.count)

    @cached_property
    def kept(self) -> Subspace:
        """Of the training rows of the file alone, scaled to norm 1: those that the peers were fitted on."""
        return subspace(self.train.direction.T @ self.train.direction, len(self.labels)) if self.whole else self.unit

    @cached_property
    def class_means(self) -> Floats:
        """Mean direction of each class, (C, M), by the labels of the file."""
        members = np.eye(len(self.bias))[self.labels]
        found: Floats = members.T @ self.train.direction / members.sum(axis=0)[:, None]
        return found

    @cached_property
    def within(self) -> Subspace:
        """Of the directions in the file less the mean of their class."""
        rest = self.train.direction - self.class_means[self.labels]
        return subspace(rest.T @ rest, len(rest))

    def length(self, share: float = ENTROPY_LEFT) -> float:
        """The length at which p keeps a share of its entropy, as "auto" finds it for a quarter."""
        if share not in self._lengths:
            logits = self.sample.numpy() @ self.weight.T + self.bias / self.mean_norm
            self._lengths[share] = factor_for_entropy(logits, share)
        return self._lengths[share]

    @cached_property
    def factor(self) -> float:
        """What the network's own logits are multiplied by to keep a quarter of the entropy over the training rows."""
        return factor_for_entropy(self.train.logits, ENTROPY_LEFT)

    def aurocs(self, scores: Floats) -> dict[str, float]:
        """AUROC in percent of scores of ``new``, against every OOD set."""
        inside = scores[self.parts["test"]]
        return {ood: auroc(inside, scores[self.parts[ood]]) for ood in (*self.near, *self.far)}

    def means(self, aurocs: dict[str, float]) -> Means:
        """Near, far, and the mean as each study has it: of the six image sets, or of near and far."""
        far = [aurocs[ood] for ood in self.far]
        if not self.near:
            return None, float(np.mean(far)), float(np.mean(far))
        near = [aurocs[ood] for ood in self.near]
        both = [*near, *far] if self.whole else [np.mean(near), np.mean(far)]
        return float(np.mean(near)), float(np.mean(far)), float(np.mean(both))


class Rows:
    """Rows of one network; those that are in its sums get the leverage they would have if they were not."""

    def __init__(self, network: Network, x: Floats, *, seen: bool = False) -> None:
        self.network, self.seen, self.x = network, seen, x.astype(float)
        self.norm: Floats = np.linalg.norm(self.x, axis=1)
        self.direction: Floats = self.x / np.where(self.norm > 0, self.norm, 1)[:, None]
        self.projected: Floats = self.direction @ network.weight.T
        self.logits: Floats = self.x @ network.weight.T + network.bias
        self._log_p: dict[float, Floats] = {}

    @cached_property
    def h(self) -> Floats:
        """Leverage of the directions."""
        return self.leverage(self.network.unit, self.direction)

    def leverage(self, geometry: Subspace, rows: Floats) -> Floats:
        """Leverage in some geometry; a row without length is outside of all."""
        h = geometry.leverage(rows)
        h = leave_one_out(h, geometry.relative_error) if self.seen else h
        return np.where(self.norm > 0, h, np.inf)

    @cached_property
    def h_within(self) -> Floats:
        """Leverage about the mean of every class, (n, C), for as many rows as the whole training set has."""
        network, white = self.network, self.network.within.whitening
        rows, means = self.direction @ white, network.class_means @ white
        squares = (rows**2).sum(axis=1)[:, None] - 2 * rows @ means.T + (means**2).sum(axis=1)
        about = np.maximum(squares, 0) * len(network.labels) / network.count
        return np.where(np.isfinite(self.h)[:, None], about, np.inf)

    def log_p(self, length: float) -> Floats:
        """Log-probabilities of the directions at a length; the bias shrinks along."""
        if length not in self._log_p:
            logits = self.projected + self.network.bias / self.network.mean_norm
            self._log_p[length] = theorem.log_softmax(length * logits)
        return self._log_p[length]


def subspace(matrix: Floats, count: int) -> Subspace:
    return Subspace.fit(Correlation.restore(matrix, count, float(count)))


def entropy(log_p: Floats) -> float:
    return float(-(np.exp(log_p) * log_p).sum(axis=1).mean())


def factor_for_entropy(logits: Floats, share: float) -> float:
    """What logits (n, C) must be multiplied by for a mean entropy of a share of log C."""

    def above(factor: float) -> bool:
        return entropy(theorem.log_softmax(factor * logits)) > share * float(np.log(logits.shape[1]))

    return bisect(above, 1 / float(np.ptp(logits, axis=1).mean()))


def bisect(above: Callable[[float], bool], high: float) -> float:
    """The positive number at which a condition ceases to hold."""
    low = 0.0
    while above(high):
        low, high = high, 2 * high
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) else (low, middle)
    return low


NOISE, QUARTER = 0.02, 0.25
TINY = 1e-300
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


def regret(log_p: Floats, h: Floats) -> Floats:
    """Regret of log-probabilities (n, C) with one leverage for each row, (n,), or for each label too, (n, C)."""
    t = xtg(np.maximum(h, TINY))
    found: Floats = theorem.regrets(log_p, t if t.ndim == 2 else t[:, None])
    return found


def doubt(log_p: Floats) -> Floats:
    found: Floats = (np.exp(log_p) * np.expm1(log_p) * log_p).sum(axis=1)
    return found


def mixed(log_p: Floats, share: float) -> Floats:
    """Log-probabilities of labels of which a share is drawn at random."""
    return np.log((1 - share) * np.exp(log_p) + share / log_p.shape[1]) if share else log_p


def noisy(rows: Rows, share: float = NOISE, entropy: float = QUARTER) -> Floats:
    return mixed(rows.log_p(rows.network.length(entropy)), share)


def paper(network: Network) -> Floats:
    return regret(theorem.log_softmax(network.new.projected + network.bias), network.new.h)


def label_noise(share: float, entropy: float = QUARTER) -> Candidate:
    return lambda network: regret(noisy(network.new, share, entropy), network.new.h)


def log_leverage(rows: Rows) -> Floats:
    found: Floats = np.log(xtg(np.maximum(rows.h, TINY)))
    return found


def log_doubt(rows: Rows, floor: float = 0.0) -> Floats:
    return np.log(doubt(noisy(rows, 0)) + floor + TINY)


def floor(share: float) -> Candidate:
    return lambda network: log_leverage(network.new) + log_doubt(network.new, share * float(np.log(len(network.bias))))


def power(exponent: float) -> Candidate:
    return lambda network: log_leverage(network.new) + exponent * log_doubt(network.new)


def standardised(combine: Callable[[Floats, Floats], Floats]) -> Candidate:
    """Both logarithms, each less its mean over the training rows and by its spread there, combined."""

    def score(network: Network) -> Floats:
        parts = []
        for of in (log_leverage, log_doubt):
            seen = of(network.train)
            parts.append((of(network.new) - seen.mean()) / seen.std())
        return combine(*parts)

    return score


def mean_up_to(times: float) -> Candidate:
    """The mean regret over lengths from 0 to so many times that of "auto", by Gauss's eight nodes."""

    def score(network: Network) -> Floats:
        rows, longest = network.new, times * network.length()
        logits = rows.projected + network.bias / network.mean_norm
        lengths = longest * (NODES + 1) / 2
        regrets = [regret(theorem.log_softmax(length * logits), rows.h) for length in lengths]
        found: Floats = WEIGHTS @ np.array(regrets) / 2
        return found

    return score


def own_norms(share: float, leverage: Leverage) -> Candidate:
    """P of the network's own logits, times the factor that leaves a quarter of the entropy."""

    def score(network: Network) -> Floats:
        log_p = theorem.log_softmax(network.factor * network.new.logits)
        return regret(mixed(log_p, share), leverage(network.new))

    return score


def with_leverage(leverage: Leverage, share: float = NOISE) -> Candidate:
    return lambda network: regret(noisy(network.new, share), leverage(network.new))


def unit(rows: Rows) -> Floats:
    return rows.h


def raw(rows: Rows) -> Floats:
    return rows.leverage(rows.network.raw, rows.x)


def kept(rows: Rows) -> Floats:
    return rows.leverage(rows.network.kept, rows.direction)


def as_if_kept(rows: Rows) -> Floats:
    """Leverage of the whole training set, as large as if it had no more rows than were kept."""
    return rows.h * (rows.network.count / len(rows.network.labels))


def centred(rows: Rows) -> Floats:
    network = rows.network
    mean = network.sums["unit"][1] / network.count
    found: Floats = rows.leverage(network.centred, rows.direction - mean) + 1 / network.count
    return found


def of_predicted(rows: Rows) -> Floats:
    found: Floats = np.take_along_axis(rows.h_within, rows.logits.argmax(axis=1)[:, None], axis=1)[:, 0]
    return found


def of_nearest(rows: Rows) -> Floats:
    found: Floats = rows.h_within.min(axis=1)
    return found


def expected(rows: Rows) -> Floats:
    found: Floats = (np.exp(noisy(rows, 0)) * rows.h_within).sum(axis=1)
    return found


def of_each_label(rows: Rows) -> Floats:
    """About the mean of every class, and the share that a class's own rows have in its mean, on average."""
    return rows.h_within + len(rows.network.bias) / rows.network.count


def without_strongest(rows: Rows) -> Floats:
    """Less the C strongest directions, or half of all if there are not twice as many."""
    geometry = rows.network.unit
    n = min(len(rows.network.bias), geometry.rank // 2)
    strong = (rows.direction @ geometry.eigenvectors[:, :n]) ** 2 @ (1 / geometry.eigenvalues[:n])
    found: Floats = np.maximum(rows.h - strong, 0)
    return found


def with_typical(times: float) -> Leverage:
    return lambda rows: rows.h + times * rows.network.unit.rank / rows.network.count


def times_neighbour(network: Network) -> Floats:
    """The regret with label noise times the distance between directions to the 10th nearest training row."""
    train = network.train.direction.astype(np.float32)
    parts = np.array_split(network.new.direction.astype(np.float32), max(1, len(network.new.norm) // 500))
    nearness = np.concatenate([np.partition(part @ train.T, -10, axis=1)[:, -10] for part in parts])
    found: Floats = regret(noisy(network.new), network.new.h) * np.sqrt(np.maximum(2 - 2 * nearness, 0))
    return found


CANDIDATES: dict[str, dict[str, Candidate]] = {
    "What there was": {"the paper, norm 1": paper, "auto before, no label noise": label_noise(0)},
    "Label noise, a quarter of the entropy": {
        f"{share:g}": label_noise(share) for share in (0.005, 0.01, NOISE, 0.03, 0.05, 0.1, 0.2)
    },
    "Label noise 0.02, another share of the entropy": {
        f"{share:g} log C": label_noise(NOISE, share) for share in (0.2, 0.3, 0.35)
    },
    "A floor under the doubt, no label noise": {f"{share:g} log C": floor(share) for share in (0.01, 0.03, 0.1, 0.3)},
    "Doubt to a power, no label noise": {f"{exponent:g}": power(exponent) for exponent in (0.5, 0.75, 1.5, 2)},
    "Logarithms of leverage and doubt, standardised on the training set": {
        "sum": standardised(np.add),
        "maximum": standardised(np.maximum),
        "log-sum-exp": standardised(np.logaddexp),
    },
    "Mean regret over lengths, no label noise": {f"up to {n:g} times that of auto": mean_up_to(n) for n in (1, 2, 3)},
    "Own norms kept": {
        "leverage of directions, no label noise": own_norms(0, unit),
        "leverage of directions, label noise 0.02": own_norms(NOISE, unit),
        "leverage of embeddings as they are, label noise 0.02": own_norms(NOISE, raw),
    },
    "Another leverage, label noise 0.02": {
        "centred": with_leverage(centred),
        "without the C strongest directions": with_leverage(without_strongest),
        "half of the typical leverage added": with_leverage(with_typical(0.5)),
        "the typical leverage added": with_leverage(with_typical(1)),
        "within classes, of the predicted": with_leverage(of_predicted),
        "within classes, of the nearest": with_leverage(of_nearest),
        "within classes, expected over p": with_leverage(expected),
        "within classes, one for each label": with_leverage(of_each_label),
        "times the distance to the 10th neighbour": times_neighbour,
    },
    "Leverage of no more rows than the peers had": {
        "no label noise": with_leverage(kept, 0),
        "label noise 0.02": with_leverage(kept),
        "label noise 0.02, all rows, leverage multiplied to that size": with_leverage(as_if_kept),
    },
}


HERE = Path(__file__).parent
PEERS = [name for name in GROUPS["peers"] if name not in REGRETS]
CONFIDENCE = ("baseline", "energy")
SHOWN = {"vim": "ViM", "knn": "KNN", "gen": "GEN", "baseline": "MSP", "energy": "Energy"}
SETS = "median leverage; median 1 - max p at the length of auto; AUROC of leverage alone, of auto before, with noise"
BEFORE, AFTER = "What there was: auto before, no label noise", "Label noise, a quarter of the entropy: 0.005"
KINDS = {"image": "image networks", "hidden": "with a hidden layer", "linear": "linear models"}


def peers(folder: Path, studies: Sequence[str]) -> dict[str, Aurocs]:
    """Return the AUROCs of the peers on every network; a peer that failed is missing."""
    held = json.loads((HERE / "independent.json").read_text(encoding="utf-8"))
    found: dict[str, Aurocs] = {name: network["auroc"] for name, network in held["networks"].items()}
    for study in studies:
        here: dict[str, Aurocs] = {}
        for result in load_study(folder, study):
            if result.scores is not None:
                of_network = here.setdefault(f"{result.model}_{result.ind}", {})
                of_network.setdefault(result.method, {})[result.ood] = result.scores.method.auroc
        found |= here
    return found


def measure(network: Network, known: Aurocs) -> tuple[dict[str, Any], dict[str, Means]]:
    """What there is to say of a network, with the means of its peers; and the means of every candidate on it."""
    check(network, known)
    found = {
        f"{family}: {name}": rounded(network.means(network.aurocs(candidate(network))))
        for family, members in CANDIDATES.items()
        for name, candidate in members.items()
    }
    sets = {*network.near, *network.far}
    means = {name: rounded(network.means(known[name])) for name in PEERS if known.get(name, {}).keys() >= sets}
    share = network.length() / network.mean_norm
    about = {"kind": network.kind, "length": round(share, 3), "peers": means, "sets": each_set(network)}
    return about, found


def each_set(network: Network) -> dict[str, list[float | None]]:
    """Of every set, as ``SETS`` says: what the regret is made of, and what label noise changes."""
    unsure = -np.expm1(network.new.log_p(network.length()).max(axis=1))
    before, after = (network.aurocs(label_noise(noise)(network)) for noise in (0, NOISE))
    alone = network.aurocs(network.new.h)
    return {
        ood: [
            float(f"{np.median(network.new.h[part]):.3g}"),
            float(f"{np.median(unsure[part]):.3g}"),
            *(round(found[ood], 2) if ood in found else None for found in (alone, before, after)),
        ]
        for ood, part in network.parts.items()
    }


def check(network: Network, known: Aurocs) -> None:
    """Refuse to go on if the peers were run on other rows, or if the package's detector scores otherwise than we do."""
    logits, detector = network.new.logits, network.detector
    same(network, "MSP", 1 - np.exp(theorem.log_softmax(logits)).max(axis=1), known["baseline"], 0.05)
    same(network, "Energy", -np.logaddexp.reduce(logits, axis=1), known["energy"], 0.05)
    if not math.isclose(detector.embedding_length, network.length(), rel_tol=1e-4):
        raise ValueError(f"{network.name}: length {network.length()}, the detector's is {detector.embedding_length}")
    believing = Detector(*detector.scaled_head, embedding_scale="paper").merge(detector.correlation)
    for noise, one in ((detector.label_noise, detector), (0.0, believing)):
        theirs = network.aurocs(np.asarray(one.score(network.stored), dtype=float))
        same(network, f"label noise {noise}", label_noise(noise)(network), theirs, 0.01)


def same(network: Network, what: str, scores: Floats, theirs: dict[str, float], tolerance: float) -> None:
    for ood, value in network.aurocs(scores).items():
        if abs(value - theirs[ood]) > tolerance:
            raise ValueError(f"{network.name}, {what}, {ood}: AUROC {value} here, {theirs[ood]} there")


def rounded(means: Means) -> Means:
    near, far, mean = means
    return None if near is None else round(near, 2), round(far, 2), round(mean, 2)


def table(networks: dict[str, Any], candidates: dict[str, dict[str, Means]]) -> str:
    counts = {kind: sum(network["kind"] == kind for network in networks.values()) for kind in KINDS}
    heads = ["", *(f"{counts[kind]} {name}" for kind, name in KINDS.items()), "near", "far"]
    heads += ["mean place", "first on", "to the best peer", "near losses"]
    rows = [heads, ["---"] * len(heads), ["**Peers**"]]
    for peer, shown in SHOWN.items():
        theirs = {name: of["peers"][peer] for name, of in networks.items()}
        rows.append([shown, *averages(networks, theirs), "", "", "", str(near_losses(networks, theirs))])
    family = ""
    for name, means in candidates.items():
        group, _, short = name.partition(": ")
        if group != family:
            family = group
            rows.append([f"**{group}**"])
        rows.append([short, *averages(networks, means), *standing(networks, means)])
    return "".join(f"| {' | '.join(row + [''] * (len(heads) - len(row)))} |\n" for row in rows)


def averages(networks: dict[str, Any], means: dict[str, Means]) -> list[str]:
    """Mean over the networks of each kind, then near and far over all."""
    columns = [[means[name][2] for name, of in networks.items() if of["kind"] == kind] for kind in KINDS]
    columns += [[near for near, _, _ in means.values() if near is not None], [far for _, far, _ in means.values()]]
    return [f"{np.mean(column):.2f}" if column else "–" for column in columns]


def standing(networks: dict[str, Any], means: dict[str, Means]) -> list[str]:
    """Mean place among the peers, how often first, distance to the best peer, and near losses."""
    places, margins = [], []
    for name, (_, _, mean) in means.items():
        theirs = [peer[2] for peer in networks[name]["peers"].values()]
        places.append(1 + sum(value > mean for value in theirs))
        margins.append(mean - max(theirs))
    return [f"{np.mean(places):.2f}", str(places.count(1)), signed(np.mean(margins)), str(near_losses(networks, means))]


def near_losses(networks: dict[str, Any], means: dict[str, Means]) -> int:
    """On how many networks near-OOD is more than a point below the better of MSP and Energy."""
    return sum(
        near < max(networks[name]["peers"][peer][0] for peer in CONFIDENCE) - 1
        for name, (near, _, _) in means.items()
        if near is not None
    )


def summary(candidates: dict[str, dict[str, Means]]) -> str:
    """What label noise changed, network by network."""
    gains = {name: mean - candidates[BEFORE][name][2] for name, (_, _, mean) in candidates[AFTER].items()}
    order = sorted(gains, key=lambda name: -gains[name])
    ends = [", ".join(f"{name} {signed(gains[name], 1)}" for name in part) for part in (order[:6], order[:-4:-1])]
    values = sorted(gains.values())
    return (
        f"\nLabel noise 0.005 against none, mean AUROC of a network: {signed(np.mean(values))} on average, "
        f"{signed(np.median(values))} the median, {signed(np.mean(values[:-4]))} without the four that gain most; "
        f"more than a point up on {sum(v > 1 for v in values)}, down on {sum(v < -1 for v in values)}. "
        f"Most: {ends[0]}. Least: {ends[1]}.\n"
    )


def signed(value: Any, digits: int = 2) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).parent / "results", help="the folder of the peers' results"
    )
    parser.add_argument("--study", action="append", default=[], help="a study of that folder; may be repeated")
    args = parser.parse_args()
    known = peers(args.results, args.study)
    networks: dict[str, Any] = {}
    candidates: dict[str, dict[str, Means]] = {}
    for path in track(args.files, "networks"):
        network = Network(path)
        networks[network.name], found = measure(network, known[network.name])
        for name, means in found.items():
            candidates.setdefault(name, {})[network.name] = means
    about = {
        "date": current_time(),
        "versions": environment(),
        "means": "AUROC in percent: near, far, mean",
        "sets": SETS,
    }
    write_record(HERE / "second-round.json", {**about, "networks": networks, "candidates": candidates})
    replace_table(HERE / "second-round.md", "table", table(networks, candidates) + summary(candidates))


if __name__ == "__main__":
    main()
