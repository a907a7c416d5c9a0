"""The numbers of ``benchmarks/speed_guard.py``, for the pages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pnml.bench.layout import markdown_table
from pnml.report.labels import label

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = ("speed-guard-h200.json", "speed-guard-cpu.json")


def guard_overhead(folder: Path) -> str:
    """Return what guarding adds to a pass, with and without earlier layers, on every machine."""
    lines = [("machine", "network", "layers watched", "pass, ms", "guarded, ms", "adds (quartiles)")]
    for name in RECORDS:
        record = json.loads((folder / name).read_text(encoding="utf-8"))
        machine = record["run"]["device"].partition(": ")[2]
        for one in record["guard"]:
            low, high = one["overhead, quartiles"]
            adds = f"{one['overhead, percent']:.1f}% ({low:.1f} to {high:.1f})".replace("-", "−")
            times = f"{one['plain, ms']:,.1f}", f"{one['guarded, ms']:,.1f}"
            lines.append((machine, label(one["network"]), str(one["watched"]), *times, adds))
    return markdown_table(lines)
