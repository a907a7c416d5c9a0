"""Locks on folders that come and go."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from pnml.io.locks import lock_folder

if TYPE_CHECKING:
    from pathlib import Path


def test_runs_that_end_and_begin_at_the_same_time_get_the_lock_or_are_refused(tmp_path: Path) -> None:
    """The folder is deleted with the lock, while others make it anew: nothing but a refusal may be raised."""
    folder, alone = tmp_path / "out.parts", Lock()

    def lock_often(_number: int) -> int:
        locked = 0
        for _ in range(300):
            with suppress(ValueError), lock_folder(folder):
                assert alone.acquire(blocking=False)
                locked += 1
                alone.release()
        return locked

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lock_often, range(4)))
    assert sum(counts) > 0
    assert not folder.exists()
