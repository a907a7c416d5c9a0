"""The records of the speed benchmarks as tables, and into the page that shows them.

Example: python benchmarks/speed_tables.py    # results/speed-cpu.json and results/speed-h200.json into docs/speed.md
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speed_gpu_tables import gpu_markdown

if TYPE_CHECKING:
    from collections.abc import Callable

OURS, QUICK, PEER = "pnml, float64", "pnml, float32", "pytorch-ood PNML"
BATCHED = f"{PEER}, 1000 rows at a time"
SUM, SYRK = "pnml, the sum alone", "float64 syrk of as many rows"


def as_markdown(record: dict[str, Any]) -> list[str]:
    """Put a CPU record into tables."""
    where, flops = record["machine"], record["gigaflops"]
    rates = ", ".join(f"{name} {value:.0f}" for name, value in flops.items())
    lines = [
        f"{where['cpu']}, {where['cores']} cores, {where['threads']} threads, torch {where['torch']}, numpy",
        f"{where['numpy']}; {record['date']}, commit {(record['commit'] or 'unknown')[:12]}; load of the machine",
        f"{record['load'][0]:.1f} before and {record['load'][1]:.1f} after. Its matrix products, GFLOP/s: {rates}.",
    ]
    for run in record["fit"]:
        lines += ["", f"**Fit**, {run['count']:,} × {run['width']}:", "", *fit_table(run)]
    for run in record["score"]:
        what = f"{run['rows']:,} × {run['width']}, {run['classes']} classes"
        lines += ["", f"**Score**, {what}:", "", *score_table(run)]
    lines += [f"\nLeft out: {'; '.join(record['left_out'])}."] if record["left_out"] else []
    for run in record["accuracy"]:
        lines += ["", *accuracy_table(run)]
    lines += ["", *condition_table(record["by_condition"])]
    for name, run in record["collapse"].items():
        lines += ["", *collapse_table(name, run)]
    return lines


def spread(values: dict[str, float], shown: Callable[[float], str]) -> str:
    return f"{shown(values['median'])} ({shown(values['lower'])} to {shown(values['upper'])})"


def seconds(value: float) -> str:
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def times(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def megabytes(value: float | None) -> str:
    return "?" if value is None else f"{value / 1e6:,.0f} MB"


def notes(result: dict[str, Any]) -> str:
    """Say how many samples count, and whether the machine was too busy for any to be trusted."""
    return f"{result['samples']} of {result['samples'] + result['dropped']}" + (", busy" if result["contended"] else "")


def fit_table(run: dict[str, Any]) -> list[str]:
    lines = [
        "| | seconds | × pnml, wall | × pnml, CPU | memory | samples |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, result in run["results"].items():
        lines.append(
            f"| {name} | {spread(result['seconds'], seconds)} | {spread(result['times_as_long'], times)} "
            f"| {times(result['times_the_cpu']['median'])} | {megabytes(result['peak_bytes'])} | {notes(result)} |"
        )
    ours, machine = (run["results"][name]["cpu_seconds"]["median"] for name in (SUM, SYRK))
    return [*lines, "", f"The sum runs at {100 * machine / ours:.0f} % of the machine's syrk rate, by CPU time."]


def score_table(run: dict[str, Any]) -> list[str]:
    lines = [
        "| | rows/s | × pnml, wall | × pnml, CPU | rows | memory | samples |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, result in run["results"].items():
        lines.append(
            f"| {name} | {result['rows_per_second']:,.0f} | {spread(result['times_as_long'], times)} "
            f"| {times(result['times_the_cpu']['median'])} | {result['rows']:,} | {megabytes(result['peak_bytes'])} "
            f"| {notes(result)} |"
        )
    return lines


def accuracy_table(run: dict[str, Any]) -> list[str]:
    lines = [
        f"**Relative error of the regret**, {run['width']} features, cond(S) = {run['condition']:.0e}, against 64 bits",
        f"of mantissa; 10 ε cond(S) is {run['limit']:.0e}:",
        "",
        "| | median | largest |",
        "|---|---:|---:|",
    ]
    errors = {name: error for name, error in run.items() if isinstance(error, dict)}
    return lines + [f"| {name} | {error['median']:.1e} | {error['largest']:.1e} |" for name, error in errors.items()]


def condition_table(runs: list[dict[str, float]]) -> list[str]:
    lines = [
        "**Largest relative error by condition**, 48 features that are fully mixed:",
        "",
        "| cond(S) | float64 | 10 ε cond(S) | float32 | left to float64 |",
        "|---:|---:|---:|---:|---:|",
    ]
    return lines + [
        f"| {run['condition']:.0e} | {run['float64']:.1e} | {run['limit']:.1e} | {run['float32']:.1e} "
        f"| {100 * run['float32_in_doubt']:.0f} % |"
        for run in runs
    ]


def collapse_table(name: str, run: dict[str, Any]) -> list[str]:
    kept = run["directions"]
    sets = list(run[OURS])
    return [
        f"**What a float32 cut-off drops**, {name}: of {run['features']} directions pnml keeps {kept[OURS]},",
        f"{PEER} {kept[PEER]}. AUROC %:",
        "",
        "| | " + " | ".join(one.removeprefix("ood/") for one in sets) + " |",
        "|---|" + "---:|" * len(sets),
        *(f"| {who} | " + " | ".join(f"{run[who][one]:.2f}" for one in sets) + " |" for who in (OURS, QUICK, PEER)),
    ]


def fill(page: str, mark: str, lines: list[str]) -> str:
    """Put lines between the marks of a page."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"the page has no lines {begin} and {end}")
    return "\n".join([before + begin, *lines, end + after])


def to(path: Path) -> dict[str, Any]:
    """Read the record of the float16 kernel, if it lies beside the large one."""
    other = path.with_name("fused.json")
    return {"fused": json.loads(other.read_text(encoding="utf-8"))} if other.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", type=Path, default=Path("results/speed-cpu.json"))
    parser.add_argument("--gpu", type=Path, default=Path("results/speed-h200.json"))
    parser.add_argument("--page", type=Path, default=Path("docs/speed.md"))
    options = parser.parse_args()
    page = options.page.read_text(encoding="utf-8")
    for mark, path, show in (("cpu", options.cpu, as_markdown), ("gpu", options.gpu, gpu_markdown)):
        if path.exists():
            record = json.loads(path.read_text(encoding="utf-8"))
            if mark == "gpu":
                record |= beside(path)
            page = fill(page, mark, show(record))
        else:
            print(f"no {path}: its tables stay as they are")
    options.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
