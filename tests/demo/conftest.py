"""The command ``demo``, run once for all tests that look at what it did, without a network."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from pnml import demo
from pnml.cli.demo import demo as command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result


class Done(NamedTuple):
    """What the command said, where it wrote, and what it had found."""

    said: Result
    folder: Path
    outcome: demo.Outcome


@pytest.fixture(scope="package", autouse=True)
def no_network() -> Iterator[None]:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the demo asked for the network")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        yield


@pytest.fixture(scope="package")
def done(tmp_path_factory: pytest.TempPathFactory, no_network: None) -> Done:
    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    app = typer.Typer()
    app.command()(command)
    found: list[demo.Outcome] = []

    def kept() -> demo.Outcome:
        found.append(run())
        return found[0]

    run = demo.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "run", kept)
        said = CliRunner().invoke(app, ["--out", str(folder)])
    assert said.exit_code == 0, said.output
    return Done(said, folder, found[0])


@pytest.fixture(scope="package")
def outcome(done: Done) -> demo.Outcome:
    return done.outcome
