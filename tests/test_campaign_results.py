"""Results of campaigns are kept line by line, gone on with, and added up."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any


def load() -> Any:
    path = Path(__file__).parent.parent / "benchmarks" / "campaign_results.py"
    spec = importlib.util.spec_from_file_location("campaign_results", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_cut_off_line_is_forgotten_and_the_next_one_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "kept.jsonl"
    first = load().Results(file)
    first.add("a", wrong=[], seconds=1.5)
    first.add("b", wrong=["it hangs"], seconds=2.5)
    file.write_text(file.read_text()[:-9])  # ended while the second line was written
    second = load().Results(file)
    assert "a" in second
    assert "b" not in second
    second.add("b", wrong=["it hangs"], seconds=3.5)
    third = load().Results(file)
    assert (third.all("seconds"), third.count_wrong()) == ([1.5, 3.5], 1)


def test_files_of_several_machines_add_up_and_no_piece_counts_twice(tmp_path: Path) -> None:
    lines = [json.dumps({"name": name, "wrong": [], "kills": 2}) + "\n" for name in ("a", "b", "b", "c")]
    (tmp_path / "both.jsonl").write_text("".join(lines))
    assert load().Results(tmp_path / "both.jsonl").all("kills") == [2, 2, 2]


def test_a_clock_never_runs_below_nothing() -> None:
    assert load().Clock(-5).left() == 0.0
    assert 3590 < load().Clock(3600).left() <= 3600
