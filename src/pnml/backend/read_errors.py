"""What a damaged or foreign file makes its reader raise, as one kind of error that names the file.

Readers wrap what they leave to decoders of other libraries, which raise anything: ``KeyError`` for a member that an
archive only lists, ``MemoryError`` for a length that was flipped, ``RuntimeError`` for a password. Errors of our own
code outside of these functions pass as they are.
"""

from __future__ import annotations

import errno
import functools
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

_P = ParamSpec("_P")
_R = TypeVar("_R")

_OURS = (AssertionError, AttributeError, ImportError)
"""Which are no fault of a file, but of this package or of what is installed beside it."""

_NUMBERS_OF_CONTENT = (None, errno.EINVAL, errno.EOVERFLOW)
"""Of ``OSError``: pyarrow and bz2 raise it for content without a number; the others are of places out of bounds."""


@contextmanager
def naming_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise ``ValueError`` that names a file, for whatever its content makes a decoder raise in this context.

    Errors of the system, as of a file that is not there, and ``ValueError`` that names the file, pass as they are.

    >>> with naming_file("rows.npz"):
    ...     raise KeyError("embedding.npy is listed, but not there")
    Traceback (most recent call last):
    ValueError: rows.npz cannot be read (KeyError: 'embedding.npy is listed, but not there'): ...
    """
    try:
        yield
    except (ValueError, OSError) as error:
        is_of_system = isinstance(error, OSError) and error.errno not in _NUMBERS_OF_CONTENT
        if is_of_system or PurePath(path).name in str(error):
            raise
        raise _named(path, str(error)) from error
    except _OURS:
        raise
    except Exception as error:
        raise _named(path, f"{type(error).__name__}: {error}") from error


def names_its_file(read: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that reads the file of its first argument, in the context of :func:`naming_file`."""

    @functools.wraps(read)
    def reading(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        path: Any = args[0]
        with naming_file(path):
            return read(*args, **kwargs)

    return reading


def _named(path: str | os.PathLike[str], reason: str) -> ValueError:
    reason = " ".join(reason.split())
    return ValueError(
        f"{path} cannot be read ({reason}): it is damaged, or of another kind than its name says; write it again"
    )
