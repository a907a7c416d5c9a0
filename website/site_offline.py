"""What a page loads from other servers: nothing, if it shall work offline and tell nobody who reads it."""

from __future__ import annotations

import re

_TAG = re.compile(r"<(?:script|link|img|iframe|source|video|audio)\b[^>]*>", re.IGNORECASE)
_ELSEWHERE = re.compile(r"\s(?:src|href|srcset)\s*=\s*[\"']?(?:https?:)?//", re.IGNORECASE)


def loaded_from_elsewhere(page: str) -> list[str]:
    """Return the tags of a page that load something from another server; links to follow are none.

    >>> loaded_from_elsewhere('<a href="https://a.org">a</a><img src="b.png"><script src="//c.org/d.js">')
    ['<script src="//c.org/d.js">']
    """
    return [tag for tag in _TAG.findall(page) if _ELSEWHERE.search(tag) and 'rel="canonical"' not in tag]
