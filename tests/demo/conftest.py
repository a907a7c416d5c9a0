"""Run ``pnml demo`` once for all tests, without network access."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, NamedTuple

import pytest
from typer.testing import CliRunner

from pnml import demo
from pnml.cli import app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result


class CommandRun(NamedTuple):
    """The output of the command, the folder it wrote to, and the result of the demo."""

    output: Result
    folder: Path
    result: demo.DemoResult


@pytest.fixture(scope="package", autouse=True)
def no_network() -> Iterator[None]:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the demo tried to access the network")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", fail)
        patch.setattr(socket, "getaddrinfo", fail)
        yield


@pytest.fixture(scope="package")
def command_run(tmp_path_factory: pytest.TempPathFactory, no_network: None) -> CommandRun:
    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    results: list[demo.DemoResult] = []

    def recording() -> demo.DemoResult:
        results.append(run())
        return results[0]

    run = demo.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "run", recording)
        output = CliRunner().invoke(app, ["demo", "--out", str(folder)])
    assert output.exit_code == 0, output.output
    return CommandRun(output, folder, results[0])


@pytest.fixture(scope="package")
def result(command_run: CommandRun) -> demo.DemoResult:
    return command_run.result
