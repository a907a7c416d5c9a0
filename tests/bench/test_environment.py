"""What a run records about the machine and the code."""

from __future__ import annotations

import platform
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from pnml_bench import environment as module
from pnml_bench.environment import environment, git_state

if TYPE_CHECKING:
    from pathlib import Path


def test_environment_names_no_host_and_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    found = environment()
    assert found["python"] == platform.python_version()
    assert {"pnml", "numpy", "platform", "cpu"} <= found.keys()
    assert platform.node() not in found.values()
    assert not any("/home" in value or "/tmp" in value for value in found.values())  # noqa: S108
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    assert "torch" not in environment()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_git_state_is_that_of_the_sources_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "PNML_COMMIT"):
        monkeypatch.delenv(name, raising=False)

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(["git", *who, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)  # noqa: S607
        return done.stdout.strip()

    source = tmp_path / "src"
    package = source / "pnml"
    package.mkdir(parents=True)
    (package / "_version.py").write_text("")
    git("init", "--quiet")
    assert git_state(source) == (None, None)  # not tracked, as in a virtual environment inside a repository
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    commit = git("rev-parse", "HEAD")
    (tmp_path / "cells.csv").write_text("results do not make the code dirty")
    assert git_state(source) == (commit, False)
    (package / "new.py").write_text("")
    assert git_state(source) == (commit, True)
    tree = git("rev-parse", "HEAD:src")
    git("commit", "--quiet", "--allow-empty", "--message=another")
    monkeypatch.setenv("PNML_COMMIT", f"{commit}\n{tree}\n")
    assert git_state(source) == (commit, True)  # what is stated, and compared, goes before what a repository says
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.delenv("PNML_COMMIT", raising=False)
    assert git_state(source) == (None, None)
    monkeypatch.setenv("PNML_COMMIT", f"{commit}\n{tree}\n")
    assert git_state(source) == (commit, True)
    (package / "new.py").unlink()
    for folder in ("__pycache__", "empty"):
        (package / folder).mkdir()
    (package / "__pycache__" / "new.pyc").write_text("compiled")
    assert git_state(source) == (commit, False)
    monkeypatch.setenv("PNML_COMMIT", commit)
    with pytest.raises(ValueError, match="expected a commit and the tree of the sources"):
        git_state(source)
