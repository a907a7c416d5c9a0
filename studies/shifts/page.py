"""The numbers of ``studies/shifts/run.py``, for the pages."""

from __future__ import annotations

import json
from pathlib import Path

from pnml_bench.layout import markdown_table

Flagged = dict[str, list[float]]

WATCHED = ("guard, 1 hidden", "guard, 2 hidden", "MLPClassifier", "LogisticRegression", "PNMLOutlierDetector()")


def columns() -> str:
    """Return which shares of rows of two tables are flagged after a shift of their columns."""
    found = _record()
    lines = [("flagged in percent: numbers / mixed", *WATCHED)]
    for shift in found[f"mixed: {WATCHED[0]}"]:
        pairs = [[found[f"{table}: {name}"][shift][0] for table in ("numbers", "mixed")] for name in WATCHED]
        lines.append((shift, *(f"{numbers:.0f} / {mixed:.0f}" for numbers, mixed in pairs)))
    return markdown_table(lines)


def pictures() -> str:
    """Return which shares of pictures are flagged after a change of all of them."""
    found = _record()
    digits, cifar = found["digits"], found["CIFAR-10"]
    lines = [("flagged in percent", "digits", "CIFAR-10")]
    for change in (name for name in cifar if name != "accuracy"):
        of_digits = f"{digits[change][0]:.0f}" if change in digits else "–"
        lines.append((change, of_digits, f"{cifar[change][0]:.0f}"))
    return markdown_table(lines)


def _record() -> dict[str, Flagged]:
    text = (Path(__file__).parent / "record.json").read_text(encoding="utf-8")
    found: dict[str, Flagged] = json.loads(text)["flagged and AUROC in percent"]
    return found
