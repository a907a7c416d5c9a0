"""The right word for a mistyped one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """Return the end of an error about a word that is none of some names: the nearest of them, or nothing.

    >>> did_you_mean("svnh", ["cifar10", "svhn"]), did_you_mean("moon", ["cifar10", "svhn"])
    ("; did you mean 'svhn'?", '')
    """
    near = get_close_matches(given.lower(), list(names), n=1, cutoff=0.7)
    return f"; did you mean {near[0]!r}?" if near else ""
