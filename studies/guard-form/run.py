"""Compare forms of the guard on what ``measure.py``, ``texts.py`` and ``tables.py`` wrote: tables, and a record.

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


Results = dict[str, dict[str, float]]  # of a form: of every network, values


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
    terms: str = "both"  # "form", "mean"; "identity" for R = 1; "norm", "square", "largest" were tried afterwards
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
        f"{level}, {slope}, {quantile}": replace(DEFAULT, level=level, slope=slope, quantile=quantile)
        for level in (0.8, 0.9, 0.95)
        for slope in (0.1, 0.2, 0.3)
        for quantile in (0.9, 0.95, 0.99)
    },
}
# What ties is taken away one after another, and then the rest of the choices around the form that is left.
STEPS: dict[str, Form] = {
    "two poolings": (TWO := replace(DEFAULT, pooling="two")),
    "+ embedding out": (OUT := replace(TWO, embedding=False)),
    "+ lengths of layers alone": (LAYERED := replace(OUT, lengths="layers")),
    "+ no prior row": (BARE := replace(LAYERED, prior_rows=False)),
}
LEFT = replace(BARE, terms="mean")
TOGETHER: dict[str, Form] = STEPS | {
    "+ R the identity": replace(BARE, terms="identity"),
    "+ R the identity, quantiles 0.9": replace(BARE, terms="identity", quantile=0.9),
    "+ mean alone": LEFT,
    "left: no lengths": replace(LEFT, lengths=""),
    "left: four in between": replace(LEFT, layers="between"),
    "left: eight layers": replace(LEFT, layers="eight"),
    "left: level 0.8": replace(LEFT, level=0.8),
    "left: level 0.8, slope 0.1": replace(LEFT, level=0.8, slope=0.1),
    "left: level 0.95": replace(LEFT, level=0.95),
    "left: slope 0.1": replace(LEFT, slope=0.1),
    "left: slope 0.3": replace(LEFT, slope=0.3),
    "left: no ratio": replace(LEFT, ratio=False),
    "left: no root": replace(LEFT, root=False),
    "left: three poolings, 64 ridges, 1,024 rows, prior row": (
        THREE := replace(LEFT, pooling="three", lengths="all", prior_rows=True)
    ),
    "left: three poolings, 16 ridges": replace(THREE, variant="ridges16/"),
    "left: three poolings, 512 rows": replace(THREE, variant="rows512/"),
}
AFTERWARDS: dict[str, Form] = {
    "left: norm of z": replace(LEFT, terms="norm"),
    "left: square of z": replace(LEFT, terms="square"),
    "left: largest z": replace(LEFT, terms="largest"),
}
OF_EMBEDDINGS = {
    "no profile": replace(ALONE, slope=0.0),
    "h_0": replace(ALONE, lengths=""),
    "h_0 and length": ALONE,
    "length": replace(ALONE, embedding=False),
}
ALONE_AFTERWARDS = {
    "no profile, no ratio": replace(ALONE, slope=0.0, ratio=False),
    "h_0, slope 0.1": replace(ALONE, lengths="", slope=0.1),
    "h_0, mean alone": replace(ALONE, lengths="", terms="mean"),
    "h_0 and length, mean alone": replace(ALONE, terms="mean"),
    "h_0, mean alone, no ratio": replace(ALONE, lengths="", terms="mean", ratio=False),
}


class Case:
    """What forms are made of for one network: arrays of left-out training rows, then of groups of new rows."""

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
        p: Array = theorem.noisy_softmax(self.lengths[form.entropy] * directions, form.noise)
        return p

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
        regrets: Array = theorem.regrets(np.log(p), (h / (1 + h))[:, None], p)
        return regrets


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
    choices = {"form": quadratic, "mean": mean, "norm": np.sqrt(np.square(z).mean(axis=1))}
    choices |= {"square": np.square(z).mean(axis=1), "largest": z.max(axis=1)}
    s = choices.get(form.terms, quadratic + mean)
    limit = float(np.quantile(s[:rows], form.level))
    reach = max(limit - float(np.median(s[:rows])), 0.1)
    beyond: Array = np.maximum(s - limit, 0) / reach
    return form.slope * beyond


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


def compare(cases: list[Case], forms: Mapping[str, Form]) -> dict[str, Results]:
    return {name: {case.name: evaluate(case, case.scores(form)) for case in cases} for name, form in forms.items()}


HEADER = "| form | score | median | near | far | TNR | better / worse |\n|---|---|---|---|---|---|---|"


def row(name: str, results: Results, default: Results) -> str:
    """Return a line of a table: means, differences from the default, on how many networks better and worse."""
    cells = []
    differences = np.array([results[case]["score"] - default[case]["score"] for case in default])
    for column in ("score", "near", "far", "tnr"):
        here, there = ([held[c][column] for c in held if column in held[c]] for held in (results, default))
        cells.append(f"{np.mean(here):.2f} ({np.mean(here) - np.mean(there):+.2f})")
    cells.insert(1, f"{np.median(differences):+.2f}")
    return f"| {name} | {' | '.join(cells)} | {(differences > 0.02).sum()} / {(differences < -0.02).sum()} |"


def print_distorted(results: Mapping[str, Results]) -> None:
    """Print the shares of distorted pictures that are flagged, means over networks."""
    kinds = [group for group in next(iter(results["default"].values())) if group.startswith("distorted")]
    print("\n| flagged |", *(f" {kind.partition('/')[2]} |" for kind in kinds))
    for form in ("default", *(f for f in results if f[:2] in {"A:", "B:", "C:", "D:", "E'", "to", "af"})):
        print(f"| {form} |", *(f" {np.mean([held[kind] for held in results[form].values()]):.1f} |" for kind in kinds))


def print_networks(results: Mapping[str, Results], forms: tuple[str, ...]) -> None:
    """Print near, far and TNR of some forms for every network."""
    print("\n| network |", *(f" {form} |" for form in forms))
    for case in results["default"]:
        cells = [
            [f"{results[f][case].get(column, np.nan):.2f}" for column in ("score", "near", "far", "tnr")] for f in forms
        ]
        print(f"| {case} |", *(f" {' '.join(cell)} |" for cell in cells))


def print_tables(case: Case, forms: Mapping[str, Form]) -> Results:
    """Print AUROC and the share flagged of every change of a table, and return them."""
    answer = {}
    changes = [group for group in case.groups if group != "known"]
    print(f"\n| {case.name} |", *(f" {change.partition('/')[2]} |" for change in changes))
    for name, form in forms.items():
        values = answer[name] = evaluate(case, case.scores(form))
        print(f"| {name} |", *(f" {values[change]:.1f}, {values[f'flagged/{change}']:.0f} |" for change in changes))
    return answer


def short(results: Mapping[str, Results], *, whole: tuple[str, ...] = ()) -> dict[str, object]:
    """Return results of forms for a record: of every network score, near, far and TNR, and all groups of some forms."""
    columns = ("score", "near", "far", "tnr")
    return {
        form: {
            case: {k: round(v, 2) for k, v in values.items() if not k.startswith("flagged")}
            if form in whole
            else [round(values[column], 2) if column in values else None for column in columns]
            for case, values in held.items()
        }
        for form, held in results.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    cases = [Case(path) for path in sorted(args.folder.glob("*.npz"))]
    tables = [case for case in cases if case.name.startswith("table")]
    texts = [case for case in cases if not case.has_layers]
    images = [case for case in cases if case not in tables + texts]
    accuracies = {case.name: round(float(case.arrays["accuracy"]), 1) for case in cases}
    record: dict[str, object] = {"accuracy": accuracies, "columns": ["score", "near", "far", "tnr"]}
    print("accuracy:", ", ".join(f"{name} {value:.1f}" for name, value in accuracies.items()), "\n")

    forms = {"default": DEFAULT} | {
        f"{letter}: {name}": f for letter, held in CHOICES.items() for name, f in held.items()
    }
    forms |= {f"together: {name}": form for name, form in TOGETHER.items()}
    forms |= {f"afterwards: {name}": form for name, form in AFTERWARDS.items()}
    results = compare(images, forms)
    for name in ("msp", "energy"):
        results[name] = {case.name: evaluate(case, case.arrays[name]) for case in images}
    print(HEADER, *(row(name, result, results["default"]) for name, result in results.items()), sep="\n")
    print_distorted(results)
    print_networks(results, ("default", "A: mean + maximum", "together: + mean alone"))
    whole = ("default", "A: mean + maximum", "together: + mean alone")
    record["images"] = short(results, whole=whole)

    of_embeddings = OF_EMBEDDINGS | {f"afterwards: {name}": form for name, form in ALONE_AFTERWARDS.items()}
    for kind, some in (("image embeddings", images), ("text", texts)):
        results = compare(some, of_embeddings)
        print(f"\nG, {kind}\n{HEADER}")
        print(*(row(name, result, results["no profile"]) for name, result in results.items()), sep="\n")
        print_networks({"default": results["no profile"]} | results, tuple(OF_EMBEDDINGS))
        record[f"G, {kind}"] = short(results, whole=tuple(OF_EMBEDDINGS) if some is texts else ())

    for case in tables:
        kept = {name: form for name, form in forms.items() if name[:2] in {"de", "A:", "B:", "C:", "E'", "to", "af"}}
        record[case.name] = short({"of this table": print_tables(case, kept)}, whole=("of this table",))
    if args.record:
        args.record.write_text(compact(record), encoding="utf-8")


def compact(record: dict[str, object]) -> str:
    """Return JSON of a line for every form or table."""
    lines = []
    for name, held in record.items():
        inner = held if isinstance(held, dict) else {}
        text = ",\n  ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in inner.items())
        lines.append(f" {json.dumps(name)}: " + (f"{{\n  {text}\n }}" if inner else json.dumps(held)))
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    main()
