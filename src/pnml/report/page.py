"""Write the page of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pnml.backend.files import write_text
from pnml.report.by_class import class_table
from pnml.report.document import render_document
from pnml.report.flagged import flagged_samples
from pnml.report.gallery import gallery
from pnml.report.labels import label
from pnml.report.page_data import page_data
from pnml.report.tables import METRICS, layout, metric_table
from pnml.report.verdict import UNDECIDED, decisions, is_undecided, misses, verdict

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from pnml.report.model import Report, ScoredSet


def write_report(report: Report, path: str | os.PathLike[str]) -> Path:
    """Write a report as one self-contained HTML file, atomically, and return its path.

    Args:
        report: the contents.
        path: of the file; missing folders are created.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from pnml.report import Report, ScoredSet
    >>> known = ScoredSet(name="known", role="in", regret=[0.1, 0.2])
    >>> new = ScoredSet(name="new", role="out", regret=[0.3, 0.4])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(Report(title="Known & new", facts={}, sets=(known, new)), Path(folder) / "report.html")
    ...     "<h1>Known &amp; new</h1>" in page.read_text(encoding="utf-8")
    True
    """
    return write_text(path, render(report))


def render(report: Report) -> str:
    """Return the page as HTML."""
    own = metric_table(report)
    return render_document(
        "report.html",
        scripts=("drawing.js", "axes.js", "charts.js", "page.js"),
        kind="pNML report",
        title=report.title,
        facts=report.facts,
        data=page_data(report),
        report=report,
        metrics={metric: label(metric) for metric in METRICS},
        parts=[_part(report, number, one) for number, one in report.numbered_sets],
        has_shares=any(one.leverage is not None for one in report.sets),
        undecided=UNDECIDED if is_undecided(report) else "",
        tables=[layout(table) for table in ([] if own is None else [own]) + list(report.tables)],
    )


def _part(report: Report, number: int, scored: ScoredSet) -> dict[str, Any]:
    """Return what the page says about a set; the script shows the part of the selected one."""
    decided = decisions(report, scored)
    classes = None
    if decided is not None and scored.prediction is not None:
        classes = layout(class_table(scored.prediction, decided, report.class_names, report.calibration, scored.name))
    return {
        "number": number,
        "name": scored.name,
        "role": scored.role,
        "verdict": verdict(report, scored),
        "misses": misses(report, scored),
        "flagged": flagged_samples(report, scored),
        "classes": classes,
        "has_images": scored.images is not None,
        "gallery": gallery(report, scored),
    }
