"""One HTML file with its style, script and data inside: what all pages have in common."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from pnml._version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENVIRONMENT = Environment(
    loader=PackageLoader("pnml.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}


def render_document(template: str, scripts: Sequence[str], **contents: object) -> str:
    """Return a page as HTML.

    Args:
        template: its name; it extends ``page.html``.
        scripts: the names of its scripts, in the order in which they run.
        contents: what the template reads: ``title``, ``facts`` by name, ``data`` of the scripts, and its own.
    """
    style = _source("style.css")
    script = "\n".join(map(_source, scripts))
    # Only this style, this script and embedded images are allowed: a text that slipped through cannot do harm.
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    page = _ENVIRONMENT.get_template(template)
    return page.render(style=style, script=script, policy=policy, generator=f"pnml {__version__}", **contents)


def _source(name: str) -> str:
    return (_ENVIRONMENT.loader or PackageLoader("pnml.report")).get_source(_ENVIRONMENT, name)[0]


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
