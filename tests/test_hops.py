"""From what a user calls to the matrix products it is as many calls as docs/architecture.md says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import pnml
from pnml.cli import app
from pnml.core import scorer

SOURCE = str(Path(pnml.__file__).parent)
DISPATCHER = str(Path(SOURCE) / "cli" / "_app.py")  # runs every command, before any of its work
OF_SCORER = ["_result", "regret_and_xtg", "_by_chunk", "work", "_regrets_and_xtg", "compute_terms"]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions of pnml that are active when the products are computed, outermost first."""
    active: list[str] = []
    compute = scorer.compute_terms

    def note(*args: Any) -> Any:
        frame, active[:] = sys._getframe(1), ["compute_terms"]
        while frame is not None:
            if frame.f_code.co_filename.startswith(SOURCE) and frame.f_code.co_filename != DISPATCHER:
                active.insert(0, frame.f_code.co_name)
            frame = frame.f_back  # type: ignore[assignment]
        return compute(*args)

    monkeypatch.setattr(scorer, "compute_terms", note)
    return active


def test_guard_is_eight_calls_deep(calls: list[str]) -> None:
    x = torch.rand(200, 6, generator=torch.Generator().manual_seed(0))
    guard = pnml.guard(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))).fit([x], progress=False)
    guard(x)
    assert calls == ["forward", "of_rows", *OF_SCORER]


def test_score_command_is_twelve_calls_deep(calls: list[str], tmp_path: Path) -> None:
    rows = np.random.default_rng(0).random((200, 6)).astype(np.float32)
    np.save(tmp_path / "new.npy", rows)
    pnml.Detector(np.eye(3, 6)).fit(rows).save(tmp_path / "detector.safetensors")
    words = ["score", tmp_path / "detector.safetensors", "--embeddings", tmp_path / "new.npy"]
    done = CliRunner().invoke(app, [str(word) for word in [*words, "--out", tmp_path / "scores.csv"]])
    assert done.exit_code == 0, done.output
    assert calls == ["with_options", "score", "score", "score_rows", "_score_chunk", "__call__", *OF_SCORER]
