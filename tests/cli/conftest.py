from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from safetensors.torch import save_file

from .cli_files import MODULE, make_files, make_images, network

if TYPE_CHECKING:
    from pathlib import Path

    from .cli_files import Files


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """A working folder with embeddings and the head that they enter."""
    monkeypatch.chdir(tmp_path)
    return make_files(tmp_path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a module that makes the model, its weights, and images."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made_here.py").write_text(MODULE)
    save_file(network().state_dict(), tmp_path / "model.safetensors")
    make_images(tmp_path / "train", 200)
    make_images(tmp_path / "held", 50, seed=1)
    make_images(tmp_path / "new", 20, seed=2)
    return tmp_path
