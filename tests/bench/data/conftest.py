"""Made sets on disk, found through the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .layouts import make_all

if TYPE_CHECKING:
    from pathlib import Path

N = 12


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every set, twelve images each; not to be changed."""
    root = tmp_path_factory.mktemp("made")
    make_all(root, N)
    return root


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and no PNML_DATA."""
    monkeypatch.setenv("PNML_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PNML_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def home(made: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The made sets in PNML_DATA."""
    monkeypatch.setenv("PNML_DATA", str(made))
    return made
