"""Functions and classes that an option names in a file or a module."""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pnml.io.code import load_code

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def load(spec: object) -> Any:
    return load_code(str(spec), "--method", "class", "Detector")


@pytest.fixture(autouse=True)
def forget_modules() -> Iterator[None]:
    """Leave no module of these tests for others to import."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("answer = 42\n")
    path = tmp_path / "mine.py"
    path.write_text("from beside import answer\n\nclass Detector:\n    answer = answer\n\nnumber = 3\n")
    return path


def test_a_file_sees_the_modules_beside_it(mine: Path) -> None:
    before = list(sys.path)
    found = load(f"{mine}:Detector")
    assert found.value().answer == 42
    assert found.file == mine
    assert found.digest == hashlib.sha256(mine.read_bytes()).hexdigest()
    assert sys.path == before


def test_a_file_runs_once_until_it_changes(mine: Path) -> None:
    first = load(f"{mine}:Detector").value
    assert load(f"{mine}:Detector").value is first
    mine.write_text("class Detector:\n    answer = 1\n")
    assert load(f"{mine}:Detector").value.answer == 1


def test_a_file_that_fails_leaves_no_module(tmp_path: Path) -> None:
    (tmp_path / "half_made.py").write_text("import nowhere_to_be_found\n")
    with pytest.raises(ValueError, match=r"half_made\.py failed with ModuleNotFoundError: .*nowhere_to_be_found"):
        load(f"{tmp_path / 'half_made.py'}:Detector")
    assert "half_made" not in sys.modules


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mine.py", "names no class: expected mine.py:Detector or package.module:Detector"),
        (":Detector", "names no class"),
        ("mine.py:", "names no class"),
        ("gone.py:Detector", "there is no file 'gone.py'"),
        ("mine.py:Other", "mine.py has no class 'Other'; it has Detector"),
        ("mine.py:number", "mine.py has no class 'number'; it has Detector"),
        ("beside.py:Detector", "beside.py has no class 'Detector'; it has none at all"),
    ],
)
def test_what_is_missing_is_named(spec: str, message: str, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mine.parent)
    with pytest.raises(ValueError, match=f"--method '{spec}'.*{message}".replace(".", r"\.").replace(r"\.*", ".*")):
        load(spec)
