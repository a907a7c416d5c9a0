"""One HTML file with its style, script and data inside: what all pages have in common."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from pnml._version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LEAD_FACTS = 3  # number of facts below the title


def render_document(
    *,
    kind: str,
    title: str,
    facts: Mapping[str, str],
    sections: str,
    data: object,
    styles: Sequence[str],
    scripts: Sequence[str],
) -> str:
    """Return a page as HTML.

    Args:
        kind: of page, in the line above the title.
        title: of the page.
        facts: by name; the first ones stand below the title.
        sections: the body, as HTML.
        data: what the scripts read, ready for JSON.
        styles: the names of style sheets beside this module.
        scripts: the names of scripts beside this module, in the order in which they run.
    """
    style, script = "\n".join(map(_asset, styles)), "\n".join(map(_asset, scripts))
    lead = " · ".join(f"{name}: {value}" for name, value in list(facts.items())[:_LEAD_FACTS])
    return Template(_asset("page.html")).substitute(
        kind=escape(kind),
        title=escape(title),
        lead=f'<p class="lead">{escape(lead)}</p>' if lead else "",
        generator=f"pnml {__version__}",
        sections=sections,
        data=_json(data),
        style=style,
        script=script,
        policy=escape(_policy(style, script)),
    )


def render_plot(key: str, name: str, control: str = "") -> str:
    """Return the container of a chart, with a text for the current value and a table of all values."""
    return f"""<div class="plot" id="{key}" role="img" tabindex="0" aria-label="{name}"></div>
{control}<p class="readout" id="{key}-readout" aria-live="polite"></p>
<details data-table="{key}"><summary>{name}: table of values</summary><div class="scroll"></div></details>"""


def render_entries(title: str, key: str, entries: Mapping[str, str]) -> str:
    """Return a section of names and texts; nothing without any."""
    if not entries:
        return ""
    listed = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>\n" for name, text in entries.items())
    return f"""<section class="panel" aria-labelledby="{key}-title">
<h2 id="{key}-title">{title}</h2>
<dl class="facts">{listed}</dl>
</section>"""


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
