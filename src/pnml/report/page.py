"""Write the page of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml.backend.files import write_text
from pnml.report.document import render_document
from pnml.report.page_data import page_data
from pnml.report.sections import render_sections

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from pnml.report.model import Report


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
    return render_document(
        kind="pNML report",
        title=report.title,
        facts=report.facts,
        sections=render_sections(report),
        data=page_data(report),
        styles=("report.css",),
        scripts=("drawing.js", "axes.js", "charts.js", "page.js"),
    )
