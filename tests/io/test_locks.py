"""Locks on folders that come and go."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from pnml.io.locks import lock_folder

_TRIES = 2000


def test_runs_that_end_and_begin_at_the_same_time_get_the_lock_or_are_refused(tmp_path: Path) -> None:
    """The folder is deleted with the lock, while others make it anew: nothing but a refusal may be raised."""
    folder = tmp_path / "out.parts"

    def lock_often(_number: int) -> int:
        locked = 0
        for _ in range(_TRIES):
            with suppress(ValueError), lock_folder(folder):
                locked += 1
        return locked

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lock_often, range(4)))
    assert sum(counts) > 0
    assert not folder.exists()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted on Linux")
def test_a_refusal_leaves_no_file_open(tmp_path: Path) -> None:
    with lock_folder(tmp_path / "out"):
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(20):
            with pytest.raises(ValueError, match="another run writes to"), lock_folder(tmp_path / "out"):
                pass
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_folder_with_files_stays(tmp_path: Path) -> None:
    with lock_folder(tmp_path / "kept"):
        (tmp_path / "kept" / "part.npz").touch()
    assert [file.name for file in (tmp_path / "kept").iterdir()] == ["part.npz"]
