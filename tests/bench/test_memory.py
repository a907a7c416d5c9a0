from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import torch

from pnml_bench import clock as memory
from pnml_bench.clock import Memory, watched_memory

if TYPE_CHECKING:
    from pathlib import Path

CPU = torch.device("cpu")
MIB = 2**20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lets the peak be measured anew")
def test_peak_and_kept_memory_are_measured_separately() -> None:
    with watched_memory(CPU) as before:
        large = torch.ones(200 * MIB // 4)
        del large
    with watched_memory(CPU) as taken:
        kept = torch.ones(60 * MIB // 4)
        freed = torch.ones(100 * MIB // 4)
        del freed
    assert len(kept)
    assert before.peak is not None
    assert before.peak > 190 * MIB
    assert taken.peak is not None
    assert taken.kept is not None
    assert 150 * MIB < taken.peak < 190 * MIB  # nothing of the larger peak before
    assert 50 * MIB < taken.kept < 90 * MIB


@pytest.mark.parametrize("entry", ["clear_refs", "another"])
def test_memory_is_none_where_the_peak_cannot_be_reset(
    entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / entry).mkdir()  # a folder cannot be written to
    monkeypatch.setattr(memory, "_PROCESS", tmp_path)
    with watched_memory(CPU) as taken:
        pass
    assert taken == Memory(None, None)
