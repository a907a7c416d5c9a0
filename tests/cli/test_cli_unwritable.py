"""Folders that nothing can be written to: said before the work, not after it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from pnml.backend.files import check_writable, write_text
from pnml.engines import local

from .cli_files import fails, make_files, succeeds

if TYPE_CHECKING:
    from pathlib import Path

    from .cli_files import Files

SAID = "the folder {} is read-only, or not yours to write to: give a path in another"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Files beside a folder that is read-only, for root as well."""
    monkeypatch.chdir(tmp_path)
    made = make_files(tmp_path)
    made.fitted("detector.safetensors", calibrated=True)
    succeeds("score", "detector.safetensors", "--embeddings", "new.npy", "--out", "scores.csv")
    (tmp_path / "locked").mkdir()
    allowed = os.access

    def access(path: Any, mode: int, **rest: Any) -> bool:
        is_locked = bool(mode & os.W_OK) and os.path.basename(path) == "locked"  # noqa: PTH119 - any kind of path
        return not is_locked and allowed(path, mode, **rest)

    monkeypatch.setattr(os, "access", access)
    return made


@pytest.mark.parametrize(
    "line",
    [
        "fit --embeddings train.npy --head head.npz --out locked/d.safetensors",
        "fit --embeddings train.npy --head head.npz --out locked/below/d.safetensors",
        "score detector.safetensors --embeddings new.npy --out locked/s.csv",
        "report scores.csv --detector detector.safetensors --out locked/page.html",
        "monitor scores.csv --detector detector.safetensors --out locked/page.html",
        "monitor scores.csv --detector detector.safetensors --state locked/state.safetensors",
        "bench --results locked",
        "demo --out locked",
    ],
)
def test_outputs_are_tried_before_the_work(line: str, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fit", "score"):
        monkeypatch.setattr(local, name, None)  # calling it would be an error of another kind
    assert SAID.format(files / "locked") in fails(*line.split())
    assert not any((files / "locked").iterdir())


def test_a_detector_in_such_a_folder_is_not_calibrated(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "detector.safetensors").rename(files / "locked" / "detector.safetensors")
    monkeypatch.setattr(local, "calibrate", None)
    assert "is read-only" in fails("calibrate", "locked/detector.safetensors", "--embeddings", "held.npy")


def test_links_are_followed_to_the_folder_that_is_written_to(files: Files) -> None:
    (files / "page.html").symlink_to(files / "locked" / "page.html")
    with pytest.raises(PermissionError, match=r"cannot write .*page\.html: the folder .*locked is read-only"):
        write_text(files / "page.html", "text")
    check_writable(files / "new" / "folder" / "page.html")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_permissions_of_a_folder_count(tmp_path: Path) -> None:
    folder = tmp_path / "mine no more"
    folder.mkdir(mode=0o555)
    with pytest.raises(PermissionError, match="mine no more is read-only"):
        check_writable(folder / "page.html")
