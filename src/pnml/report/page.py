"""Write the page: sections, data, style and script in one file."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from pnml._version import __version__
from pnml.backend.files import atomic_path
from pnml.report.page_data import page_data
from pnml.report.sections import render_sections

if TYPE_CHECKING:
    import os

    from pnml.report.model import Report

_SCRIPTS = ("drawing.js", "charts.js", "page.js")
_LEAD_FACTS = 3  # number of facts below the title


def write_report(report: Report, path: str | os.PathLike[str]) -> Path:
    """Write a report as one self-contained HTML file, atomically, and return its path.

    Args:
        report: the contents.
        path: of the file; missing folders are created.

    >>> import tempfile
    >>> from pnml.report import Report, ScoredSet
    >>> known = ScoredSet(name="known", role="in", regret=[0.1, 0.2])
    >>> new = ScoredSet(name="new", role="out", regret=[0.3, 0.4])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(Report(title="Known & new", facts={}, sets=(known, new)), Path(folder) / "report.html")
    ...     "<h1>Known &amp; new</h1>" in page.read_text(encoding="utf-8")
    True
    """
    path = Path(path)
    text = render(report)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def render(report: Report) -> str:
    """Return the page as HTML."""
    style, script = _asset("report.css"), "\n".join(_asset(name) for name in _SCRIPTS)
    lead = " · ".join(f"{name}: {value}" for name, value in list(report.facts.items())[:_LEAD_FACTS])
    return Template(_asset("page.html")).substitute(
        title=escape(report.title),
        lead=f'<p class="lead">{escape(lead)}</p>' if lead else "",
        generator=f"pnml {__version__}",
        sections=render_sections(report),
        data=_json(page_data(report)),
        style=style,
        script=script,
        policy=escape(_policy(style, script)),
    )


def _asset(name: str) -> str:
    return files("pnml.report").joinpath(name).read_text(encoding="utf-8")


def _json(value: object) -> str:
    """Return JSON that cannot end the script element it is embedded in."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _policy(style: str, script: str) -> str:
    """Return a content security policy that allows only this style, this script and embedded images."""
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
