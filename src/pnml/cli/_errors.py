"""One line instead of a traceback, red or yellow, for everything that is wrong with files and options."""

from __future__ import annotations

import errno
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from safetensors import SafetensorError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors that a user can mend into a message on stderr and exit code 1, and warnings into a message."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show
            yield
    except (ValueError, OSError, ImportError, SafetensorError) as error:
        typer.secho(f"error: {_message(error)}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from error


def _show(message: Warning | str, *_where: object, **_how: object) -> None:
    typer.secho(f"warning: {message}", fg=typer.colors.YELLOW, err=True)


def _message(error: Exception) -> str:
    # safetensors reports a full disk as an error of its own, with the system's number in its text.
    if getattr(error, "errno", None) == errno.ENOSPC or f"(os error {errno.ENOSPC})" in str(error):
        return "the disk is full: nothing half-written was left; free some space and run the command again"
    return str(error)
