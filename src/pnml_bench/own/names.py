"""The names that one's own networks, sets and methods have in results."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

_SPLITS = {"train", "training"}


def name_of_code(spec: str) -> str:
    """Return the name of a function or a class: its file or module, and its own.

    >>> name_of_code("nets/mine.py:create"), name_of_code("package.module:Detector")
    ('mine-create', 'package-module-detector')
    """
    source, _, name = spec.rpartition(":")
    return _plain(f"{PurePath(source).stem if source.endswith('.py') else source}-{name}")


def name_of_file(path: str) -> str:
    """Return the name of a set or a head: the last part of its path.

    >>> name_of_file("holiday/My Photos/"), name_of_file("head.npz")
    ('my-photos', 'head')
    """
    return _plain(PurePath(path).stem)


def name_of_ind(path: str) -> str:
    """Return the name of an in-distribution set: the folder above, if the last part says no more than "train".

    >>> name_of_ind("photos/train"), name_of_ind("photos/train.parquet"), name_of_ind("train/"), name_of_ind("cats")
    ('photos', 'photos', 'train', 'cats')
    """
    name = name_of_file(path)
    return (name_of_file(str(PurePath(path).parent)) if name in _SPLITS else "") or name


def same_path(path: str, *others: str | None) -> bool:
    """Return whether a path leads where one of others does.

    >>> same_path("photos/test/", None, "./photos/test")
    True
    """
    return any(other is not None and Path(other).resolve() == Path(path).resolve() for other in others)


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
