"""The page: sections, numbers, style and script in one file."""

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
from pnml.report.numbers import numbers
from pnml.report.sections import render_sections

if TYPE_CHECKING:
    import os

    from pnml.report.model import Report

_SCRIPTS = ("drawing.js", "charts.js", "page.js")
_IN_LEAD = 3  # how many facts stand under the title


def write_report(report: Report, path: str | os.PathLike[str]) -> Path:
    """Write a report as one HTML file that needs nothing but itself, whole or not at all.

    Args:
        report: what to show.
        path: of the file; folders on the way to it are made.

    Returns:
        The path of the file.

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
    """Give the page as text."""
    style, script = _asset("report.css"), "\n".join(_asset(name) for name in _SCRIPTS)
    lead = " · ".join(f"{name}: {value}" for name, value in list(report.facts.items())[:_IN_LEAD])
    return Template(_asset("page.html")).substitute(
        title=escape(report.title),
        lead=f'<p class="lead">{escape(lead)}</p>' if lead else "",
        generator=f"pnml {__version__}",
        sections=render_sections(report),
        numbers=_json(numbers(report)),
        style=style,
        script=script,
        policy=escape(_policy(style, script)),
    )


def _asset(name: str) -> str:
    return files("pnml.report").joinpath(name).read_text(encoding="utf-8")


def _json(value: object) -> str:
    """Write JSON that no text in it can end the script element of."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _policy(style: str, script: str) -> str:
    """Allow this very style and script, pictures in the page, and nothing else."""
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
