"""What a run records about the machine and the code."""

from __future__ import annotations

import platform
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from pnml_bench import environment as module
from pnml_bench.environment import environment, git_state
from pnml_bench.results import start_run

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


def test_environment_names_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert environment()["gpu"] == "a GPU"
    assert environment()["torch"] == torch.__version__


def test_cpu_name_is_read_from_cpuinfo_where_there_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(module, "_CPUINFO", cpuinfo)
    monkeypatch.setattr(platform, "processor", lambda: "")
    assert environment()["cpu"] == platform.machine()
    cpuinfo.write_text("processor : 0\n")
    assert environment()["cpu"] == platform.machine()
    cpuinfo.write_text("processor : 0\nmodel name : Fast One\nmodel name : Fast One\n")
    assert environment()["cpu"] == "Fast One"


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


def test_a_run_records_the_code_it_was_started_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pnml_bench.results.git_state", lambda: ("0123abc", True))
    run = start_run("pnml bench", "cpu: a CPU")
    assert (run.command, run.device, run.commit, run.dirty) == ("pnml bench", "cpu: a CPU", "0123abc", True)
    assert run.versions == environment()
    assert run.run_id.startswith(run.date[:4])
    assert run.run_id != start_run("pnml bench --oracle", "cpu: a CPU").run_id
