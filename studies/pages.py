"""Write every measured number of the README and the pages from the records: ``python -m studies.pages``.

What is measured stands between ``<!-- numbers: NAME -->`` and ``<!-- end of numbers -->``, and is never typed. The
tests write the pages again and compare. ``--check`` does the same and changes nothing.

The long tables, docs/tables, are written along.
"""

from __future__ import annotations

import argparse
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pnml.backend.files import write_text
from pnml_bench.store import ResultStore
from studies import boards as page_boards
from studies.digits import page as page_digits
from studies.families import page as page_text
from studies.paper import page as page_paper
from studies.photographs import page as page_photographs
from studies.shifts import page as page_shifts
from studies.speed import page as page_speed
from studies.uses import page as page_uses

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml_bench.results import Result

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
TABLES = ROOT / "docs" / "tables"
FAMILIES = ROOT / "studies" / "families"
_BLOCK = re.compile(r"<!-- numbers: (?P<name>[a-z-]+) -->\n.*?<!-- end of numbers -->", re.DOTALL)


@cache
def results() -> tuple[Result, ...]:
    """Read the records once."""
    return tuple(ResultStore(RESULTS).load())


BLOCKS: dict[str, Callable[[], str]] = {
    "shifts-columns": page_shifts.columns,
    "shifts-pictures": page_shifts.pictures,
    "paper-counts": lambda: page_paper.counts(results()),
    "paper-agreement": lambda: page_paper.agreement(results()),
    "paper-differences": lambda: page_paper.summary_of_differences(results(), RESULTS),
    "paper-arithmetics": lambda: page_paper.arithmetics(results()),
    "paper-near": lambda: page_paper.near(results()),
    "gram-counts": lambda: page_paper.gram_counts(RESULTS),
    "trainings": lambda: page_paper.trainings(results(), RESULTS),
    "boards": lambda: page_boards.table(results()),
    "boards-words": lambda: page_boards.words(results()),
    "near-far": lambda: page_boards.near_and_far(results()),
    "second-words": page_boards.second_words,
    "second-table": lambda: page_boards.tested_table(page_boards.second()),
    "second-weak": lambda: page_boards.weak(page_boards.second()),
    "stranger-words": page_boards.stranger_words,
    "stranger-table": lambda: page_boards.tested_table(page_boards.strangers()),
    "stranger-weak": lambda: page_boards.weak(page_boards.strangers()),
    "photographs-summary": lambda: page_photographs.summary(results()),
    "openood": lambda: page_photographs.openood(results()),
    "tinyimagenet": lambda: page_photographs.tinyimagenet(results()),
    "digits-flagged": page_digits.flagged,
    "digits-calibrated": page_digits.calibrated,
    "speed": page_speed.beside_the_peer,
    "guard-overhead": page_speed.guard_overhead,
    "text-intents": lambda: page_text.intents(FAMILIES),
    "text-summary": lambda: page_text.summary(FAMILIES),
    "uses-selective": page_uses.selective,
    "uses-calibration": page_uses.calibration,
    "uses-adversarial": page_uses.adversarial,
    "uses-labelling": page_uses.labelling,
    "uses-ahead": page_uses.ahead,
}
"""What stands in the blocks, by name."""

FILES: dict[str, Callable[[], str]] = {
    "tables.md": lambda: page_paper.tables(results()),
    "differences.md": lambda: page_paper.all_differences(results(), RESULTS),
    "leaderboard.md": lambda: page_boards.leaderboards(results()),
}
"""The files of docs/tables that are written whole."""


def pages() -> list[Path]:
    """Return the README and all pages of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def rewritten(text: str) -> str:
    """Return a page with the numbers of the records."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in BLOCKS:
            raise ValueError(f"no numbers are named {name!r}: choose from {', '.join(BLOCKS)}")
        return f"<!-- numbers: {name} -->\n{BLOCKS[name]().rstrip()}\n<!-- end of numbers -->"

    return _BLOCK.sub(block, text)


def texts() -> dict[Path, str]:
    """Return what every page and table should hold."""
    found = {page: rewritten(page.read_text(encoding="utf-8")) for page in pages() if page.parent != TABLES}
    return found | {TABLES / name: write() for name, write in FILES.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page is not as written")
    check = parser.parse_args().check
    stale = {path: text for path, text in texts().items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in stale.items():
        print(f"{'differs' if check else 'wrote'}: {path.relative_to(ROOT)}")
        if not check:
            write_text(path, text)
    if check and stale:
        sys.exit("run python -m studies.pages")


if __name__ == "__main__":
    main()
