"""Links from names in the text to the reference: ``pnml.guard`` to its docstring, ``pnml fit`` to its options."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_NAME_OR_SKIPPED = re.compile(
    r"^```.*?^```[ \t]*$|^#[^\n]*$|\[[^\]]*\]\([^)]*\)|`(?P<code>pnml[^`\n]*)`", re.MULTILINE | re.DOTALL
)


def documented(pages: Iterable[str]) -> set[str]:
    r"""Return the names that pages of the reference document.

    >>> documented(["# Guard\n\n::: pnml.guard\n"])
    {'pnml.guard'}
    """
    return {name for page in pages for name in re.findall(r"^::: (\S+)", page, re.MULTILINE)}


def linked(text: str, page: str, names: Collection[str], commands: Collection[str]) -> str:
    """Return a page in which each name and each command links to the reference where it stands first.

    Args:
        text: the page, as Markdown; its blocks of code, titles and links stay as they are.
        page: where it is on the site.
        names: of the Python reference.
        commands: of the page of commands, as "pnml fit".

    >>> linked("`pnml.guard(model)` and `pnml fit --help`", "guides/a.md", {"pnml.guard"}, {"pnml fit"})
    '[`pnml.guard(model)`][pnml.guard] and [`pnml fit --help`](../commands.md#pnml-fit)'
    """
    seen: set[str] = set()
    target = posixpath.relpath("commands.md", posixpath.dirname(page) or ".")

    def link(match: re.Match[str]) -> str:
        words = (match["code"] or "").split()
        candidates = [" ".join(words[:3]), " ".join(words[:2]), (match["code"] or "").partition("(")[0]]
        name = next((one for one in candidates if one in names or one in commands), None)
        if name is None or name in seen:
            return match[0]
        seen.add(name)
        return f"[{match[0]}]" + (f"[{name}]" if name in names else f"({target}#{name.replace(' ', '-')})")

    return _NAME_OR_SKIPPED.sub(link, text)
