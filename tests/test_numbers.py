"""One truth: what the README and the pages say was measured is in the records.

Numbers of the benchmark stand in blocks that ``studies/pages.py`` writes: here they are written again and compared.
On pages about other measurements, every decimal number in the text is one of the page's records, rounded.
"""

from __future__ import annotations

import importlib
import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
pages = importlib.import_module("studies.pages")

WRITTEN = (
    "README.md",
    "docs/results.md",
    "docs/guides/text.md",
    "docs/guides/uses.md",
)
"""Pages whose measured numbers all stand in blocks."""

CONSTANTS = {
    "README.md": {"3.10": "the oldest Python", "3.13": "the newest", "2.0": "the licence"},
    "docs/guides/guarantee.md": dict.fromkeys(
        ("0.1", "17.6", "1.7", "10.0", "3.7", "6.4", "4.6", "5.4", "4.9", "97.5", "2.6", "1.4", "10.7"),
        "theory, tested in tests/core/test_conformal.py, or what the page's snippet prints",
    ),
    "docs/results.md": {"0.7": "what the paper says of its Iris figure"},
    "docs/guides/text.md": {"0.2": "the version in the note at the top"},
    "docs/guides/uses.md": {"0.2": "the version in the note at the top"},
}
"""Decimal numbers outside of the blocks that are no measurements, and what they are."""

RECORDS: dict[str, tuple[str, ...]] = {
    "docs/guides/guarantee.md": ("guarantee", "digits"),
}
"""Pages with numbers of other studies, and which."""

_NUMBER = re.compile(r"(?<![\w.,-])[-−]?\d+\.\d+(?![\w.])")
_NOT_TEXT = re.compile(r"```.*?```|`[^`\n]*`|^    [^\n]*$|\]\([^)]*\)", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"<!-- numbers: .*?<!-- end of numbers -->", re.DOTALL)


def decimals(text: str) -> list[str]:
    """Return the decimal numbers of a page, without code, addresses and blocks."""
    plain = _NOT_TEXT.sub(" ", _BLOCK.sub(" ", text))
    return [number.replace("−", "-") for number in _NUMBER.findall(plain)]


def leaves(value: Any) -> list[float]:
    """Return every number of a JSON value."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return []
    if isinstance(value, dict):
        return list(chain.from_iterable(map(leaves, value.values())))
    return list(chain.from_iterable(map(leaves, value))) if isinstance(value, list) else [float(value)]


@pytest.fixture(scope="module")
def texts() -> dict[Path, str]:
    found: dict[Path, str] = pages.texts()
    return found


def test_pages_are_as_their_program_writes_them(texts: dict[Path, str]) -> None:
    stale = [path.relative_to(ROOT) for path, text in texts.items() if path.read_text(encoding="utf-8") != text]
    assert not stale, f"run python -m studies.pages: {stale}"


@pytest.mark.parametrize("page", WRITTEN)
def test_no_measured_number_is_typed(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert _BLOCK.search(text)
    assert set(decimals(text)) <= CONSTANTS.get(page, {}).keys()


@pytest.mark.parametrize("page", RECORDS)
def test_numbers_are_in_the_records_of_the_page(page: str) -> None:
    records = [
        json.loads((ROOT / "studies" / name / "record.json").read_text(encoding="utf-8")) for name in RECORDS[page]
    ]
    values = leaves(records)
    known = {f"{factor * value:.{digits}f}" for value in values for factor in (1, 100) for digits in (1, 2, 3, 4)}
    typed = decimals((ROOT / page).read_text(encoding="utf-8"))
    assert not sorted({number for number in typed if number not in known and number not in CONSTANTS.get(page, {})})


def test_a_wrong_number_is_noticed() -> None:
    assert decimals(
        "It has 97.3% `99.9` ([here](a/12.5.md)), −0.4 points; Apache-2.0, version 1.2.3.\n\n    p = 0.995\n"
    ) == [
        "97.3",
        "-0.4",
    ]
    assert pages.rewritten("<!-- numbers: second-words -->\n99.9\n<!-- end of numbers -->").count("99.9") == 0
    with pytest.raises(ValueError, match="no numbers are named 'luck'"):
        pages.rewritten("<!-- numbers: luck -->\n<!-- end of numbers -->")


def test_no_page_speaks_of_older_defaults() -> None:
    """Their histories are in git, and in the changelog."""
    older = re.compile(r"label noise 0\.02|older default|default before this|`(?:other|confirm)` of")
    for path in pages.pages():
        assert not older.search(path.read_text(encoding="utf-8")), path
