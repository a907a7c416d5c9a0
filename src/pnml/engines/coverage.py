"""Check that a run has read every row once, of an input that stayed as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pnml.io.source import Samples


def check_coverage(samples: Samples, done: int) -> None:
    """Raise ``ValueError`` unless all rows are done, and the input is the one that was opened.

    Args:
        samples: what was read.
        done: the number of rows that were summed or scored, images that were skipped included.
    """
    if samples.reader.fingerprint() != samples.reader.opened:
        raise ValueError(f"{samples.path} changed while it was read: run the command again")
    if done != samples.count:
        raise ValueError(f"{done:,} of {samples.count:,} rows of {samples.path} were read: run the command again")
