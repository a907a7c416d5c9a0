"""Results of campaigns are kept line by line, gone on with, and added up."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


campaign: Any = import_module("studies.checks.campaign_results")


def test_a_cut_off_line_is_forgotten_and_the_next_one_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "kept.jsonl"
    first = campaign.Results(file)
    first.add("a", wrong=[], seconds=1.5)
    first.add("b", wrong=["it hangs"], seconds=2.5)
    file.write_text(file.read_text()[:-9])  # ended while the second line was written
    second = campaign.Results(file)
    assert "a" in second
    assert "b" not in second
    second.add("b", wrong=["it hangs"], seconds=3.5)
    third = campaign.Results(file)
    assert (third.all("seconds"), third.count_wrong()) == ([1.5, 3.5], 1)


def test_files_of_several_machines_add_up_and_no_piece_counts_twice(tmp_path: Path) -> None:
    lines = [json.dumps({"name": name, "wrong": [], "kills": 2}) + "\n" for name in ("a", "b", "b", "c")]
    (tmp_path / "both.jsonl").write_text("".join(lines))
    assert campaign.Results(tmp_path / "both.jsonl").all("kills") == [2, 2, 2]
