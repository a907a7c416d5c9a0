"""Messages on stderr: errors as one line instead of a traceback, warnings, and resumed runs."""

from __future__ import annotations

import errno
import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from safetensors import SafetensorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_EXPECTED = (ValueError, OSError, ImportError, SafetensorError)
"""What wrong files, values and installations raise; their texts are written for users."""


class Refused(ValueError):  # noqa: N818
    """Raised where a command did not do what was asked for; ``facts`` say what it found nevertheless."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


class Noticed(Exception):  # noqa: N818
    """Raised where a command is done, and scripts should learn by the exit code what it found; ``facts`` say it."""

    def __init__(self, facts: dict[str, Any]) -> None:
        super().__init__()
        self.facts = facts


class Interrupted(Exception):  # noqa: N818
    """Raised after Ctrl-C, with what is kept."""


@contextmanager
def if_interrupted(kept: str) -> Iterator[None]:
    """Name what is kept if the user interrupts what is done in this context."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(kept) from None


@contextmanager
def messages() -> Iterator[list[str]]:
    """Print warnings and notes of the engines on stderr, each warning once; yield the list of the warnings."""
    texts: list[str] = []

    def show(message: Warning | str, *_args: object, **_kwargs: object) -> None:
        if str(message) not in texts:
            texts.append(str(message))
            typer.secho(f"warning: {message}", fg=typer.colors.YELLOW, err=True)

    logger = logging.getLogger("pnml.engines")
    handler = _EchoHandler()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            yield texts
    finally:
        logger.removeHandler(handler)


def one_line(error: Exception, files: Sequence[str] = ()) -> str:
    """Return the text of an error; with its class, the command's files and a hint where nobody wrote it for users.

    >>> one_line(ValueError("expected 8 features, got 7"))
    'expected 8 features, got 7'
    >>> one_line(KeyError("fc"), ["head.npz"])
    "unexpected KeyError: 'fc'; the command was given head.npz; --traceback shows where it comes from"
    """
    # safetensors reports a full disk as an error of its own, with the system's number in its text.
    number = getattr(error, "errno", None)
    target = getattr(error, "filename", None)
    if number == errno.ENOSPC or f"(os error {errno.ENOSPC})" in str(error):
        where = "" if target is None else f"cannot write {target}, "
        return f"{where}the disk is full: nothing half-written was left; free some space and run the command again"
    if number == errno.EROFS:
        return f"cannot write {target}: its disk is read-only: give a path on another"
    if isinstance(error, FileExistsError | NotADirectoryError) and error.filename:
        return f"{error.filename} is a file where a folder is expected: give another path"
    if isinstance(error, _EXPECTED):
        return str(error)
    given = f"; the command was given {', '.join(files)}" if files else ""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # the latter is PyTorch's
        return f"out of memory: {error}{given}; if images go through a model, give a smaller --batch-size"
    return f"unexpected {type(error).__name__}: {error}{given}; --traceback shows where it comes from"


class _EchoHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(record.getMessage(), err=True)
