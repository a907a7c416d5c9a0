"""The numbers of ``studies/speed/run.py`` and ``studies/speed/guard.py``, for the pages."""

from __future__ import annotations

import json
from pathlib import Path

from pnml.report.labels import label
from pnml_bench.layout import markdown_table

FOLDER = Path(__file__).parent
RECORDS = ("guard-h200.json",)


def guard_overhead() -> str:
    """Return what guarding adds to a pass, with and without earlier layers, on every machine."""
    lines = [("machine", "network", "batch", "layers watched", "pass, ms", "guarded, ms", "adds (quartiles)")]
    for name in RECORDS:
        record = json.loads((FOLDER / name).read_text(encoding="utf-8"))
        machine = record["run"]["device"].partition(": ")[2]
        for one in record["guard"]:
            low, high = one["overhead, quartiles"]
            adds = f"{one['overhead, percent']:.1f}% ({low:.1f} to {high:.1f})".replace("-", "−")
            times = f"{one['plain, ms']:,.1f}", f"{one['guarded, ms']:,.1f}"
            pixels = f", {one['pixels']} pixels" if one.get("pixels", 32) != 32 else ""
            network = label(one["network"]) + pixels + (", bfloat16" if one.get("dtype") == "bfloat16" else "")
            network += ", compiled" if one.get("compiled") else ""
            lines.append((machine, network, str(one["batch"]), str(one["watched"]), *times, adds))
    return markdown_table(lines)


def beside_the_peer() -> str:
    """Return the CPU time of the peer divided by ours, for fitting and for scoring, with every kind of kernels."""
    record = json.loads((FOLDER / "record.json").read_text(encoding="utf-8"))
    lines: list[tuple[str, ...]] = []
    for name, one in record.items():
        for problem in one["problems"]:
            if not lines:
                batches = (f"{batch['batch']:,}" for batch in problem["scoring"])
                lines.append(("kernels", "scale", "M, C", "fit", *batches))
            ratios = (f"{batch['score']['median']:.2f}" for batch in problem["scoring"])
            size = f"{problem['width']:,}, {problem['classes']:,}"
            lines.append((name.partition(", ")[2], problem["scale"], size, f"{problem['fit']['median']:.2f}", *ratios))
    return markdown_table(lines)
