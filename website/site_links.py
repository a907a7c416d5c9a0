"""Where files of the repository are on the site.

Pages below ``docs`` link to each other, and to files elsewhere in the repository, by relative paths that work where the
repository is browsed. On the site, ``docs`` is the root, notebooks are pages, and other files are below ``project``.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_CODE = re.compile(r"^(```+|~~~+).*?^\1[ \t]*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)(?=[)#\s])")


def place(path: str) -> str:
    """Return the page or file of the site that a file of the repository becomes.

    >>> place("docs/guides/pytorch.md"), place("examples/images.ipynb"), place("results/README.md")
    ('guides/pytorch.md', 'examples/images.md', 'project/results/README.md')
    """
    parts = PurePosixPath(path)
    if parts.parts[0] == "docs":
        return str(parts.relative_to("docs"))
    if parts.parts[0] == "examples":
        return str(parts.with_suffix(".md")) if parts.suffix == ".ipynb" else path
    return f"project/{path}"


def linked_files(text: str, page: str) -> list[str]:
    """Return the files of the repository that a page links to; ``page`` is its path in the repository."""
    return [_resolve(match[2], page) for match in _links(text)]


def on_the_site(text: str, page: str) -> str:
    """Return a page with its links as they are on the site.

    >>> on_the_site("[Records](../results/README.md#studies)", "docs/results.md")
    '[Records](project/results/README.md#studies)'
    """
    start = posixpath.dirname(place(page))
    pieces, end = [], 0
    for match in _links(text):
        target = posixpath.relpath(place(_resolve(match[2], page)), start or ".")
        pieces += [text[end : match.start(2)], target]
        end = match.end(2)
    return "".join([*pieces, text[end:]])


def linked_from(pages: Iterable[str], root: Path) -> list[str]:
    """Return the files outside of ``docs`` that pages link to, directly or by way of each other."""
    found: list[str] = []
    waiting = list(pages)
    while waiting:
        page = waiting.pop()
        for path in linked_files((root / page).read_text(encoding="utf-8"), page):
            if not path.startswith(("docs/", "..")) and path not in found and (root / path).is_file():
                found.append(path)
                if path.endswith(".md"):
                    waiting.append(path)
    return sorted(found)


def _links(text: str) -> list[re.Match[str]]:
    """Return the links of a page to other files, those in code left out."""
    code = [(match.start(), match.end()) for match in _CODE.finditer(text)]
    return [m for m in _LINK.finditer(text) if not any(start <= m.start(2) < end for start, end in code)]


def _resolve(link: str, page: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
