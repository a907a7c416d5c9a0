"""Docstrings as Markdown, by an extension of griffe, which reads them for the reference."""

from __future__ import annotations

import re
from typing import Any

try:
    from griffe import Extension
except ImportError:  # the site's tools are not installed
    Extension = object

_DOCTEST = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)[ \t]*\S.*)*", re.MULTILINE)
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?\.?(?:(?P<text>[^`<]+?) <[^`>]+>|(?P<name>[^`]+))`")


def as_markdown(text: str) -> str:
    """Return a docstring with its doctests as blocks of code, and roles of Sphinx as plain code or text.

    >>> as_markdown("Return 2, as :func:`two` and :mod:`another module <pnml.two>` do.")
    'Return 2, as `two` and another module do.'
    """
    return _ROLE.sub(lambda role: role["text"] or f"`{role['name']}`", _DOCTEST.sub(_fenced, text))


def _fenced(match: re.Match[str]) -> str:
    indent = match["indent"]
    return f"{indent}```pycon\n{match[0]}\n{indent}```"


class MarkdownDocstrings(Extension):  # type: ignore[misc]  # griffe is not followed
    """Rewrite every docstring as Markdown."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of an object that has one."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
