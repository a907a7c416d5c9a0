"""Compare forms of the guard on what ``measure.py``, ``texts.py`` and ``tables.py`` wrote: ``record.json``, and tables on the screen.

    python studies/guard-form/run.py FOLDER [--record studies/guard-form/record.json]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from leverages import SAMPLE, chosen

from pnml.core import theorem
from pnml.metrics import auroc, tnr_at_tpr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@dataclass(frozen=True)
class Form:
    """One form of the guard: the choices of the plan, at their defaults."""

    pooling: str = "three"
    embedding: bool = True  # in the profile, about the overall mean
    lengths: str = "all"  # with the embedding's own, "layers" without, "" for none
    layers: str = "four"  # "" for embeddings alone
    level: float = 0.9
    slope: float = 0.2
    quantile: float = 0.95
    prior_in_r: float = 1.0  # times P
    terms: str = "both"  # "form", "mean"; "identity" for R = 1
    variant: str = ""
    prior_rows: bool = True
    weight: float = 0.3
    entropy: float = 0.25
    noise: float = 0.005
    ratio: bool = True
    root: bool = True


DEFAULT = Form()
ALONE = replace(DEFAULT, layers="")
CHOICES: dict[str, dict[str, Form]] = {
    "A": {"mean + maximum": replace(DEFAULT, pooling="two")},
    "B": {"embedding out": replace(DEFAULT, embedding=False)},
    "C": {
        "lengths of layers alone": replace(DEFAULT, lengths="layers"),
        "no lengths": replace(DEFAULT, lengths=""),
    },
    "D": {
        "four in between": replace(DEFAULT, layers="between"),
        "eight layers": replace(DEFAULT, layers="eight"),
    },
    "E": {
        "level 0.8": replace(DEFAULT, level=0.8),
        "level 0.95": replace(DEFAULT, level=0.95),
        "slope 0.1": replace(DEFAULT, slope=0.1),
        "slope 0.3": replace(DEFAULT, slope=0.3),
        "quantiles 0.9": replace(DEFAULT, quantile=0.9),
        "quantiles 0.99": replace(DEFAULT, quantile=0.99),
        "no prior rows in R": replace(DEFAULT, prior_in_r=0.0),
        "10 P prior rows in R": replace(DEFAULT, prior_in_r=10.0),
    },
    "E'": {
        "quadratic form alone": replace(DEFAULT, terms="form"),
        "mean alone": replace(DEFAULT, terms="mean"),
        "R the identity": replace(DEFAULT, terms="identity"),
    },
    "F": {
        "16 ridges": replace(DEFAULT, variant="ridges16/"),
        "no prior row": replace(DEFAULT, prior_rows=False),
        "512 sample rows": replace(DEFAULT, variant="rows512/"),
    },
    "H": {
        "weight 0.15": replace(DEFAULT, weight=0.15),
        "weight 0.6": replace(DEFAULT, weight=0.6),
        "entropy left 0.125": replace(DEFAULT, entropy=0.125),
        "entropy left 0.5": replace(DEFAULT, entropy=0.5),
        "label noise 0.002": replace(DEFAULT, noise=0.002),
        "label noise 0.02": replace(DEFAULT, noise=0.02),
        "no ratio": replace(DEFAULT, ratio=False),
        "no root": replace(DEFAULT, root=False),
    },
    "grid": {
        f"level {level}, slope {slope}, quantile {quantile}": replace(DEFAULT, level=level, slope=slope, quantile=quantile)
        for level in (0.8, 0.9, 0.95)
        for slope in (0.1, 0.2, 0.3)
        for quantile in (0.9, 0.95, 0.99)
    },
}
OF_EMBEDDINGS = {
    "no profile": replace(ALONE, slope=0.0),
    "h_0": replace(ALONE, lengths=""),
    "h_0 and length": ALONE,
    "length": replace(ALONE, embedding=False),
}


class Case:
    """What forms are made of for one network: arrays of training rows, left out, and after them of groups of new rows."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        with np.load(path) as held:
            self.arrays = {name: held[name].astype(np.float64) for name in held.files if name != "groups"}
            groups = [str(group) for group in held["groups"]]
        sizes = self.arrays["sizes"].astype(int)
        self.sample = len(self.arrays["e"]) - sizes.sum()
        ends = self.sample + np.cumsum([0, *sizes])
        self.groups = {g: slice(a, b) for g, a, b in zip(groups, ends[:-1], ends[1:], strict=True)}
        self.has_layers = "three/layers" in self.arrays
        self.lengths: dict[float, float] = {}

    def components(self, form: Form) -> Array:
        """Return the leverages that the profile of a form compares, (n, P)."""
        columns = []
        if form.embedding:
            columns.append(self.arrays[f"{form.variant}0"][:, None])
        if form.layers and self.has_layers:
            layers = self.arrays[f"{form.pooling}/{form.variant}layers"]
            columns.append(layers[:, chosen(form.layers, self.arrays["positions"].astype(int).tolist())])
        if form.lengths:
            name = f"{form.pooling}/{form.variant}{form.layers}/{form.lengths}"
            columns.append(self.arrays[name if form.layers and self.has_layers else f"{form.variant}length"][:, None])
        return np.concatenate(columns, axis=1)

    def probabilities(self, form: Form) -> Array:
        """Return p at the length at which a share of the entropy is left."""
        directions = self.arrays["directions"]
        if form.entropy not in self.lengths:
            self.lengths[form.entropy] = balanced_length(directions[: self.sample], form.entropy)
        return theorem.noisy_softmax(self.lengths[form.entropy] * directions, form.noise)

    def scores(self, form: Form) -> Array:
        """Return the regrets of all rows."""
        rows = min(self.sample, SAMPLE // 2 if form.variant == "rows512/" else SAMPLE)
        prefix = form.variant if form.prior_rows else "prior0/"
        e, background = self.arrays[f"{prefix}e"], self.arrays[f"{form.variant}0"]
        typical = max(float(np.median(e[:rows])), 1e-300)
        own = form.weight * (np.sqrt(e / typical) if form.root else e / typical)
        if form.ratio:
            own = own * e / np.maximum(background, 1e-30)
        h = own + excess(self.components(form), rows, form) if form.slope else own
        p = self.probabilities(form)
        return theorem.regrets(np.log(p), (h / (1 + h))[:, None], p)


def balanced_length(directions: Array, share: float) -> float:
    """Return the length at which the mean entropy over rows has fallen to a share of that at length 0."""
    shifted = directions - directions.max(axis=1, keepdims=True)
    low, high = -10.0, 15.0  # logarithms
    for _ in range(50):
        middle = (low + high) / 2
        log_p = theorem.log_softmax(np.exp(middle) * shifted)
        entropy = -(np.exp(log_p) * log_p).sum(axis=1).mean()
        low, high = (middle, high) if entropy > share * np.log(directions.shape[1]) else (low, middle)
    return float(np.exp((low + high) / 2))


def excess(h: Array, rows: int, form: Form) -> Array:
    """Return what the components (n, P) add to the leverage, of which the first rows are left-out training rows."""
    logs = np.log(np.maximum(h, 1e-9))
    sample, width = logs[:rows], h.shape[1]
    centre, spread = np.median(sample, axis=0), np.maximum(sample.std(axis=0), 0.01)
    centred = (sample - sample.mean(axis=0)) / spread
    prior = form.prior_in_r * width
    correlation = (centred.T @ centred + (prior + 1e-9) * np.eye(width)) / (rows + prior)
    inverse = np.eye(width) if form.terms == "identity" else np.linalg.inv(correlation)
    z = np.maximum((logs - centre) / spread, 0)
    quadratic, mean = ((z @ inverse) * z).sum(axis=1), z.mean(axis=1)
    quadratic = quadratic / max(float(np.quantile(quadratic[:rows], form.quantile)), 0.1 * width)
    mean = mean / max(float(np.quantile(mean[:rows], form.quantile)), 0.1)
    s = {"form": quadratic, "mean": mean}.get(form.terms, quadratic + mean)
    limit = float(np.quantile(s[:rows], form.level))
    reach = max(limit - float(np.median(s[:rows])), 0.1)
    return form.slope * np.maximum(s - limit, 0) / reach


def evaluate(case: Case, scores: Array) -> dict[str, float]:
    """Return AUROC and TNR of every group, their means, and the shares of distorted pictures that are flagged."""
    known = scores[case.groups["known"]]
    threshold = np.quantile(known, 0.95)
    answer: dict[str, float] = {}
    held: dict[str, list[float]] = {"near": [], "far": [], "tnr": []}
    for group, rows in case.groups.items():
        kind = group.partition("/")[0]
        if kind in {"near", "far"}:
            value = auroc(known, scores[rows])
            answer[group] = value
            held[kind].append(value)
            held["tnr"].append(tnr_at_tpr(known, scores[rows]))
            answer[f"flagged/{group}"] = held["tnr"][-1]
        elif kind == "distorted":
            answer[group] = float(100 * (scores[rows] > threshold).mean())
    answer |= {kind: float(np.mean(values)) for kind, values in held.items() if values}
    answer["score"] = float(np.mean([answer[kind] for kind in ("near", "far") if kind in answer]))
    return answer


def compare(cases: list[Case], forms: Mapping[str, Form]) -> dict[str, dict[str, dict[str, float]]]:
    return {name: {case.name: evaluate(case, case.scores(form)) for case in cases} for name, form in forms.items()}


def row(name: str, results: dict[str, dict[str, float]], default: dict[str, dict[str, float]]) -> str:
    """Return a line of a table: means, differences from the default, and on how many networks it is better and worse."""
    cells = []
    for column in ("score", "near", "far", "tnr"):
        here, there = ([held[c][column] for c in held if column in held[c]] for held in (results, default))
        cells.append(f"{np.mean(here):.2f} ({np.mean(here) - np.mean(there):+.2f})")
    differences = np.array([results[case]["score"] - default[case]["score"] for case in default])
    return f"| {name} | {' | '.join(cells)} | {(differences > 0.02).sum()} / {(differences < -0.02).sum()} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    cases = [Case(path) for path in sorted(args.folder.glob("*.npz"))]
    images = [case for case in cases if case.has_layers and not case.name.startswith("table")]
    tables = [case for case in cases if case.name.startswith("table")]
    record: dict[str, object] = {"accuracy": {case.name: float(case.arrays["accuracy"]) for case in cases}}
    header = "| form | score | near | far | TNR | better / worse |\n|---|---|---|---|---|---|"
    if images:
        print("networks:", ", ".join(f"{case.name} {float(case.arrays['accuracy']):.1f}" for case in images), "\n")
        default = compare(images, {"default": DEFAULT})["default"]
        others = {
            name: {case.name: evaluate(case, case.arrays[name]) for case in images} for name in ("msp", "energy")
        }
        record["layers"] = {"default": default} | others
        print(header, row("default", default, default), *(row(n, r, default) for n, r in others.items()), sep="\n")
        for letter, forms in CHOICES.items():
            results = compare(images, forms)
            record[letter] = results
            print(*(row(f"{letter}: {name}", result, default) for name, result in results.items()), sep="\n")
        print("\n| distorted |", *(f" {name.partition('/')[2]} |" for name in default[images[0].name] if "dist" in name))
        for name in ("default", "A", "B", "C", "D"):
            for form, results in ({"": default} if name == "default" else record[name]).items():
                shares = [np.mean([held[g] for held in results.values()]) for g in default[images[0].name] if "dist" in g]
                print(f"| {name} {form} |", *(f" {share:.1f} |" for share in shares))
    for kind, some in (("image embeddings", images), ("text", [case for case in cases if not case.has_layers])):
        if some:
            results = compare(some, OF_EMBEDDINGS)
            record[f"G: {kind}"] = results
            print("\nG,", kind, "\n", header, sep="")
            print(*(row(name, result, results["no profile"]) for name, result in results.items()), sep="\n")
    if tables:
        print("\n| AUROC, flagged on tables |", *(f" {g.partition('/')[2]} |" for g in list(tables[0].groups)[1:]))
    for case in tables:
        for name, form in {"default": DEFAULT, **{n: f for c in "ABC" for n, f in CHOICES[c].items()}, **CHOICES["E'"]}.items():
            results = evaluate(case, case.scores(form))
            record[f"{case.name}: {name}"] = results
            flagged = [results[f"flagged/{g}"] for g in list(case.groups)[1:]]
            cells = [f" {results[g]:.1f}, {share:.0f} |" for g, share in zip(list(case.groups)[1:], flagged, strict=True)]
            print(f"| {case.name} {name} |", *cells)
    if args.record:
        args.record.write_text(json.dumps(rounded(record), indent=1) + "\n", encoding="utf-8")


def rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: rounded(held) for key, held in value.items()}
    return round(value, 2) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
