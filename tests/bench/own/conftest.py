from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from .files import make_files

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def forget_modules(tmp_path: Path) -> Iterator[None]:
    """Leave no module of a test for others to import."""
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a user, with the files of :mod:`tests.bench.own.files`, and no published sets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("PNML_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("PNML_CACHE", str(tmp_path / "cache"))
    make_files(tmp_path)
    return tmp_path
