"""Numbers that stay on one line: a value and its spread, in the cells of narrow columns, too."""

from __future__ import annotations

import re

_SPREAD = re.compile(r"(?<=\d) ± (?=\d)")
_TABLE_OR_CODE = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)[ \t]*$|^\|[^\n]*$", re.MULTILINE | re.DOTALL)


def unbroken(text: str) -> str:
    r"""Return a page whose tables keep a number and its spread together; blocks of code stay as they are.

    >>> unbroken("| 89.1 ± 1.5 | ± of seeds |")
    '| 89.1\u202f±\u202f1.5 | ± of seeds |'
    """

    def join(match: re.Match[str]) -> str:
        return (
            match[0] if match["fence"] else _SPREAD.sub("\N{NARROW NO-BREAK SPACE}±\N{NARROW NO-BREAK SPACE}", match[0])
        )

    return _TABLE_OR_CODE.sub(join, text)
