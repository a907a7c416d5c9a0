"""Generated sets on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .layouts import make_all

if TYPE_CHECKING:
    from pathlib import Path

N = 12


@pytest.fixture(scope="session")
def generated_sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with every set, twelve images each; tests must not change it."""
    root = tmp_path_factory.mktemp("sets")
    make_all(root, N)
    return root


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder and unset PNML_DATA."""
    monkeypatch.setenv("PNML_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PNML_DATA", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def data_folder(generated_sets: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set PNML_DATA to the generated sets."""
    monkeypatch.setenv("PNML_DATA", str(generated_sets))
    return generated_sets
