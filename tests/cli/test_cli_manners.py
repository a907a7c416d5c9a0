"""What all commands share: help with an example, one-line errors, tracebacks when asked for, exit codes, Ctrl-C."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import typer

from pnml._version import __version__
from pnml.cli import app
from pnml.engines import local

from .cli_files import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .cli_files import Files


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words and the object of every command."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))


def fit_words(files: Files) -> list[object]:
    return ["fit", "--embeddings", files / "train.npy", "--head", files / "head.npz", "--out", files / "d.safetensors"]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_the_common_options_and_an_example(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    options = {name for parameter in COMMANDS[words].params for name in parameter.opts}
    assert {"--json", "--traceback"} <= options
    done = run(*words, "--help")
    assert done.exit_code == 0
    assert f"pnml {' '.join(words)}" in done.stdout.partition("Example: ")[2]


def test_a_value_with_backslashes_is_named_once() -> None:
    said = run("fit", "--embeddings", "C:\\data\\train.npy", "--head", __file__, "--out", "d.safetensors").stderr
    assert said.count("train.npy") == 1


def test_version() -> None:
    done = run("--version")
    assert (done.exit_code, done.stdout) == (0, f"pnml {__version__}\n")
    found = json.loads(run("--version", "--json").stdout)
    assert found["pnml"] == __version__
    assert found["python"] == platform.python_version()
    assert found["numpy"] == np.__version__
    assert found["torch"] == metadata.version("torch")
    assert run("--version", "fit").exit_code == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit"], "Missing option '--out'."),
        (["fit", "--no-such-option"], "No such option: --no-such-option"),
        (["calibrate", "nowhere.safetensors"], "nowhere.safetensors"),
        (["data", "fetch", "cifar11"], "unknown image set 'cifar11'"),
        (["score", "--layers", "last"], "No such option: --layers: it goes with pnml fit, and the detector keeps it"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(words: list[str], message: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    first, second = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert second.startswith("see: pnml")
    assert second.endswith(" --help")
    assert not done.stdout
    as_json = run(*words, "--json")
    assert as_json.exit_code == 2
    assert message in json.loads(as_json.stdout)["error"]


def test_refused_is_one_line_and_exit_code_1(files: Files) -> None:
    np.savez(files / "head.npz", weight=np.ones((3, 5)))
    done = run(*fit_words(files))
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    as_json = run(*fit_words(files), "--json")
    assert as_json.exit_code == 1
    assert as_json.stderr == done.stderr
    assert json.loads(as_json.stdout) == {"error": line.removeprefix("error: "), "warnings": []}


def test_traceback_is_printed_when_asked_for(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(files / "head.npz", weight=np.ones((3, 5)))
    by_option = run(*fit_words(files), "--traceback")
    monkeypatch.setenv("PNML_TRACEBACK", "1")
    by_environment = run(*fit_words(files))
    assert by_option.exit_code == by_environment.exit_code == 1
    assert by_option.stderr == by_environment.stderr
    assert by_option.stderr.startswith("Traceback (most recent call last):")
    assert "ValueError: " in by_option.stderr.splitlines()[-1]


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_leaves_one_line(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "fit", interrupt)
    done = run(*fit_words(files))
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr == "interrupted: no file was left half-written; run the command again to start over\n"
    assert json.loads(run(*fit_words(files), "--json").stdout)["error"].startswith("interrupted: ")


def test_ctrl_c_while_modules_are_imported_leaves_one_line(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    words = [sys.executable, "-m", "pnml", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted: nothing was begun\n")
