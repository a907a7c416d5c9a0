"""The numbers of ``studies/speed/run.py`` and ``studies/speed/guard.py``, for the pages."""

from __future__ import annotations

import json
from pathlib import Path

from pnml.report.labels import label
from pnml_bench.layout import markdown_table

AIMS = {1: "1.0", 32: "1.5"}  # 2.0 for larger batches
FOLDER = Path(__file__).parent
RECORDS = ("guard-h200.json", "guard-cpu.json")


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
    """Return the CPU time of the peer divided by ours, for scoring and for fitting."""
    record = json.loads((FOLDER / "record.json").read_text(encoding="utf-8"))
    scoring = record["scoring"]
    lines = [("batch", *(f"{one['batch']:,}" for one in scoring))]
    lines += [(f"`{name}`", *(f"{one[name]['median']:.2f}" for one in scoring)) for name in ("score", "detector(x)")]
    lines.append(("aim", *(AIMS.get(one["batch"], "2.0") for one in scoring)))
    sums, ready = (record[name]["median"] for name in ("fit", "fit, ready to score"))
    fitting = f"Fitting: {sums:.2f} for the sums (aim 1.4), and {ready:.2f} with the decompositions."
    return f"{markdown_table(lines)}\n\n{fitting}"
