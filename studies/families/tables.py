"""Write the tables of ``docs/families.md`` and ``docs/text-ood.md`` from the records of the programs named there.

    python -m studies.families.tables

A number is the mean over the OOD sets of a kind, near or far, and over the tasks of a family, then over seeds, with the
standard deviation over seeds; of photographs, over networks, then over folds; of queries of CLINC150 to a frozen
encoder, over training sets. Methods that need no OOD data come first, then the mean of near and far decides.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from pnml.backend.files import write_text
from pnml_bench.layout import markdown_table
from pnml_bench.ood_data import needs_no_ood_data
from studies.families import rows_table as family_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

FAMILIES = ("imagenet", "tabular", "audio")
CLASSIFIERS = {  # tables of texts: the record of each, and its tasks there
    "text": ("text", "banking77"),
    "text-fine-tuned": ("text", "fine-tuned"),
    "clinc150": ("clinc150", "frozen"),
    "clinc150-fine-tuned": ("clinc150", "fine-tuned"),
}
PAGES = {"families.md": (*FAMILIES, "rows-a-class"), "text-ood.md": tuple(CLASSIFIERS)}
FOLDS, TRAINING_SETS = "folds", "training sets"
REPEATS = {"imagenet": FOLDS, "clinc150": TRAINING_SETS}  # what the spread is over, where it is not over seeds
NOT_YET = "*Not measured yet: the program has the plan.*\n"
FIRST, OURS = 6, "pnml"  # methods of the table by set
COLUMNS = ("Method", "Needs no OOD data", "Near AUROC", "Far AUROC", "Mean AUROC", "Near FPR@95", "Far FPR@95")


class Mean(NamedTuple):
    """The mean of several seeds, and their standard deviation."""

    value: float
    spread: float

    def __str__(self) -> str:
        return f"{self.value:.1f} ± {self.spread:.1f}"


def mean(record: dict[str, Any], method: str, metric: str, kinds: tuple[str, ...]) -> Mean | None:
    """Return the mean of a metric of a method; None where it failed on a task."""
    by_seed: dict[str, list[float]] = defaultdict(list)
    for name, task in record["tasks"].items():
        sets = task[metric].get(method)
        if sets is None:
            return None
        found = {kind: fmean(value for ood, value in sets.items() if ood.startswith(kind)) for kind in kinds}
        by_seed[name.partition("/")[2]].append(fmean(found.values()))
    seeds = [fmean(tasks) for tasks in by_seed.values()]
    return Mean(fmean(seeds), stdev(seeds))


def table(record: dict[str, Any], family: str) -> str:
    """Return the table of one family, and how accurate its classifiers are."""
    methods = dict.fromkeys(method for task in record["tasks"].values() for method in (*task["auroc"], *task["failed"]))
    lines = []
    for method in methods:
        values = (
            mean(record, method, "auroc", ("near",)),
            mean(record, method, "auroc", ("far",)),
            mean(record, method, "auroc", ("near", "far")),
            mean(record, method, "fpr", ("near",)),
            mean(record, method, "fpr", ("far",)),
        )
        lines.append((method, needs_no_ood_data(method), values))
    lines.sort(key=lambda line: (not line[1], -(line[2][2].value if line[2][2] else 0.0)))
    grid = [
        COLUMNS,
        *(
            (name, "yes" if free else "no", *("–" if one is None else str(one) for one in values))
            for name, free, values in lines
        ),
    ]
    names = list(dict.fromkeys(name.partition("/")[0] for name in record["tasks"]))
    repeats = REPEATS.get(family, "seeds")
    blocks = [about(record, names, repeats), markdown_table(grid)]
    free = [method for method, free, values in lines if free and values[2]]
    shown = free[:FIRST] + [method for method in free[FIRST:] if method == OURS]
    which = f"the first {FIRST}" + (f" and {OURS}" if len(shown) > FIRST else "")
    if len(names) > 1:
        blocks += [
            f"Mean AUROC by {'network' if repeats == FOLDS else 'set'}, of {which}:",
            markdown_table([("Method", *names), *by_set(record, shown, names)]),
        ]
    if repeats == TRAINING_SETS:
        blocks += [f"Near AUROC by training set, of {which}:", markdown_table(by_training_set(record, shown))]
    return "\n\n".join(blocks) + "\n"


def about(record: dict[str, Any], names: list[str], repeats: str) -> str:
    """Return how many classifiers there are, how accurate they are, and what the numbers of the table are."""
    accuracies = [task["accuracy"] for task in record["tasks"].values()]
    count = len({name.partition("/")[2] for name in record["tasks"]})
    if repeats != FOLDS:
        return (
            f"{len(accuracies)} classifiers, {count} {repeats}; test accuracy {min(accuracies):.1f} to "
            f"{max(accuracies):.1f}%. Percent, mean ± standard deviation over {repeats}."
        )
    of_networks = ", ".join(
        f"{name} {fmean(task['accuracy'] for task in tasks_of(record, name)['tasks'].values()):.1f}%" for name in names
    )
    return (
        f"{len(names)} classifiers, {count} folds; test accuracy over all folds: {of_networks}. Percent, mean over "
        "classifiers and folds ± standard deviation over folds."
    )


def by_set(record: dict[str, Any], methods: list[str], names: list[str]) -> list[tuple[str, ...]]:
    """Return a line for each method: its mean AUROC over near and far on the tasks of each set."""
    lines = []
    for method in methods:
        parts = [tasks_of(record, name) for name in names]
        lines.append((method, *(str(mean(part, method, "auroc", ("near", "far"))) for part in parts)))
    return lines


def by_training_set(record: dict[str, Any], methods: list[str]) -> list[tuple[str, ...]]:
    """Return a line of names, and one for each method: its mean AUROC over near sets with each training set."""
    aurocs = {name.partition("/")[2]: task["auroc"] for name, task in record["tasks"].items()}
    near = {name: [ood for ood in found[methods[0]] if ood.startswith("near")] for name, found in aurocs.items()}
    lines: list[tuple[str, ...]] = [("Method", *aurocs)]
    for method in methods:
        values = (fmean(found[method][ood] for ood in near[name]) for name, found in aurocs.items())
        lines.append((method, *(f"{value:.1f}" for value in values)))
    return lines


def tasks_of(record: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a record with the tasks of one name alone."""
    return {"tasks": {key: task for key, task in record["tasks"].items() if key.startswith(f"{name}/")}}


def text_tasks(folder: Path, name: str) -> dict[str, Any]:
    """Return the record of one of the kinds of classifiers of texts."""
    file, tasks = CLASSIFIERS[name]
    return tasks_of(read(folder, file), tasks)


def read(folder: Path, name: str) -> dict[str, Any]:
    """Return a record."""
    record: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return record


def block(folder: Path, name: str) -> str:
    """Return what stands between the comments of a name."""
    if name in CLASSIFIERS:
        record = text_tasks(folder, name)
        return table(record, name) if record["tasks"] else NOT_YET
    if name == "rows-a-class":
        return family_rows.table(read(folder, name))
    return table(read(folder, name), name)


def rewritten(page: Path, folder: Path, names: Sequence[str]) -> str:
    """Return the text of a page with the tables of the records in a folder."""
    text = page.read_text(encoding="utf-8")
    for name in names:
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"{page} has no comments {begin.strip()} and {end} to write the table between")
        text = f"{before}{begin}{block(folder, name)}{end}{after}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent, help="the folder of the records")
    parser.add_argument("--pages", type=Path, default=Path("docs"), help="the folder of the pages to write into")
    options = parser.parse_args()
    for name, tables in PAGES.items():
        page = options.pages / name
        write_text(page, rewritten(page, options.results, tables))


if __name__ == "__main__":
    main()
