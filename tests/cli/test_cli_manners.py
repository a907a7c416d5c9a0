"""What all commands share: help with an example, one-line errors, tracebacks when asked for, exit codes, Ctrl-C."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from importlib import metadata
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import typer

import pnml.io.embeddings
from pnml import Detector
from pnml._version import __version__
from pnml.backend.progress import track
from pnml.cli import app
from pnml.engines import local

from .cli_files import make_files, run

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


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return make_files(tmp_path)


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


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_examples_are_lines_of_their_own(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    written = re.findall(r"^Example: `([^`]+)`$", COMMANDS[words].help, re.MULTILINE)
    lines = run(*words, "--help").stdout.rstrip().splitlines()
    assert [" Example: " + " ".join(example.split()) for example in written] == lines[-len(written) :]


def test_a_value_with_backslashes_is_named_once() -> None:
    said = run("fit", "--embeddings", "C:\\data\\train.npy", "--head", __file__, "--out", "d.safetensors").stderr
    assert said.count("train.npy") == 1


MEAN_WHAT_THE_COMMAND_NEEDS = {
    "--batch-size",
    "--classes",
    "--column",
    "--detector",
    "--images",
    "--ind",
    "--method",
    "--model",
    "--ood",
    "--out",
    "--study",
    "--weights",
}


def test_options_of_one_name_have_one_help() -> None:
    helps: dict[str, set[str]] = {}
    for command in COMMANDS.values():
        for parameter in command.params:
            for name in parameter.opts:
                helps.setdefault(name, set()).add(parameter.help)
    several = {name for name, texts in helps.items() if len(texts) > 1 and name.startswith("--")}
    assert several <= MEAN_WHAT_THE_COMMAND_NEEDS
    assert all(text for texts in helps.values() for text in texts)


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
        (["fti"], "No such command 'fti'."),  # newer typer asks: did you mean 'fit'?
        (["fit"], "Missing option '--out'."),
        (["fit", "--no-such-option"], "No such option: --no-such-option"),
        (["fit", "--out", "d.safetensors"], "give either --embeddings, or --images"),
        (["calibrate", "nowhere.safetensors"], "nowhere.safetensors"),
        (["data", "fetch", "cifar11"], "unknown image set 'cifar11'"),
        (["--json-lines"], "No such option: --json-lines"),
        (["score", "--layers", "last"], "No such option: --layers: it goes with pnml fit, and the detector keeps it"),
        (["calibrate", "--head=head.npz"], "No such option: --head: it goes with pnml fit"),
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


def test_internal_errors_say_how_to_see_where_they_come_from(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Detector, "save", None)
    done = run(*fit_words(files))
    assert done.exit_code == 1
    assert "Traceback" not in done.stderr
    assert "error: unexpected TypeError: " in done.stderr
    assert "--traceback shows where" in done.stderr


def test_traceback_is_printed_when_asked_for(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(files / "head.npz", weight=np.ones((3, 5)))
    by_option = run(*fit_words(files), "--traceback")
    monkeypatch.setenv("PNML_TRACEBACK", "1")
    by_environment = run(*fit_words(files))
    assert by_option.exit_code == by_environment.exit_code == 1
    assert by_option.stderr == by_environment.stderr
    assert by_option.stderr.startswith("Traceback (most recent call last):")
    assert "ValueError: " in by_option.stderr.splitlines()[-1]


@pytest.mark.parametrize("value", ["0", ""])
def test_traceback_is_not_printed_where_the_environment_says_no(
    value: str, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(files / "head.npz", weight=np.ones((3, 5)))
    monkeypatch.setenv("PNML_TRACEBACK", value)
    assert run(*fit_words(files)).stderr.startswith("error: ")


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_leaves_one_line(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "fit", interrupt)
    done = run(*fit_words(files))
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr == "interrupted: no file was left half-written; run the command again to start over\n"
    assert json.loads(run(*fit_words(files), "--json").stdout)["error"].startswith("interrupted: ")


@pytest.mark.parametrize("library", ["numpy", "typer"])
def test_ctrl_c_while_modules_are_imported_leaves_one_line(library: str, tmp_path: Path) -> None:
    (tmp_path / f"{library}.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    words = [sys.executable, "-m", "pnml", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted: nothing was begun\n")


def test_a_progress_bar_ends_before_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        for _ in track(range(3), "scoring"):
            raise KeyboardInterrupt

    monkeypatch.setattr("pnml.demo.run", interrupted)
    done = run("demo")
    assert done.exit_code == 130
    bar, *_, message = done.stderr.splitlines()
    assert bar.startswith("scoring")
    assert message.startswith("interrupted: no file was left half-written")


SLOWLY = """
import signal
import time
import pnml.io.embeddings as embeddings
from pnml.cli import app

signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may ignore it
embeddings.CHUNK_BYTES = 8 * 8 * 7
plain = embeddings.EmbeddingFile.chunks

def slow(self, start=0):
    for number, chunk in enumerate(plain(self, start)):
        if number == 40:
            time.sleep(600)  # the signal comes long before
        yield chunk

embeddings.EmbeddingFile.chunks = slow
app(prog_name="pnml")
"""


@pytest.mark.slow
def test_ctrl_c_names_what_score_keeps_and_the_same_command_continues(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pnml.io.embeddings, "CHUNK_BYTES", 8 * 8 * 7)  # as in SLOWLY
    np.save(files / "many.npy", np.random.default_rng(1).normal(size=(1000, 8)).astype(np.float32))
    words = ["score", files.fitted(), "--embeddings", files / "many.npy", "--out", files / "scores.csv"]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOWLY, *map(str, words)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    while len(list((files / "scores.csv.parts").glob("*.npz"))) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert stderr.splitlines()[-1] == (
        f"interrupted: finished rows are kept in {files / 'scores.csv.parts'}; run the same command again to continue"
    )
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert "scored 1,000 rows" in done.stdout
