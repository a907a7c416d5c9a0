"""Messages on stderr: errors in files and options as one line instead of a traceback, warnings, and resumed runs."""

from __future__ import annotations

import errno
import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from safetensors import SafetensorError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors that a user can fix into a message on stderr and exit code 1, and warnings into a message."""
    logger, handler = logging.getLogger("pnml.engines"), _EchoHandler()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _Once()
            yield
    except (ValueError, OSError, ImportError, SafetensorError) as error:
        typer.secho(f"error: {_message(error)}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from error
    finally:
        logger.removeHandler(handler)


class _EchoHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(record.getMessage(), err=True)


class _Once:
    """Shows a warning the first time that its text comes, wherever it comes from."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def __call__(self, message: Warning | str, *_args: object, **_kwargs: object) -> None:
        text = str(message)
        if text not in self._shown:
            self._shown.add(text)
            typer.secho(f"warning: {text}", fg=typer.colors.YELLOW, err=True)


def _message(error: Exception) -> str:
    # safetensors reports a full disk as an error of its own, with the system's number in its text.
    if getattr(error, "errno", None) == errno.ENOSPC or f"(os error {errno.ENOSPC})" in str(error):
        return "the disk is full: nothing half-written was left; free some space and run the command again"
    return str(error)
