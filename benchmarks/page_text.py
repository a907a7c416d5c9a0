"""The numbers of ``benchmarks/text.py`` and ``text_fine_tuned.py``, for the guide about text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from family_tables import CLASSIFIERS, mean, tasks_of

from pnml.bench.layout import markdown_table

if TYPE_CHECKING:
    from pathlib import Path

METHODS = {
    "pnml": "`pnml`",
    "pnml-last": "`pnml`, the last layer alone",
    "rmd": "relative Mahalanobis distance (RMD)",
    "baseline": "largest probability (MSP)",
    "gen": "generalized entropy (GEN)",
    "energy": "Energy",
    "knn": "nearest neighbours (kNN)",
}
NAMES = {"text": "frozen encoder", "text-fine-tuned": "fine-tuned"}


def intents(folder: Path) -> str:
    """Return the AUROC of some methods on left-out intents and on code, by classifier."""
    record = json.loads((folder / "text-cpu.json").read_text(encoding="utf-8"))
    kinds = {"near": "left-out intents", "far": "code"}
    lines = [("AUROC", *(f"{NAMES[name]}: {kind}" for name in CLASSIFIERS for kind in kinds.values()))]
    for method, words in METHODS.items():
        found = (
            mean(tasks_of(record, tasks), method, "auroc", (kind,)) for tasks in CLASSIFIERS.values() for kind in kinds
        )
        lines.append((words, *("–" if one is None else str(one) for one in found)))
    return markdown_table(lines)
