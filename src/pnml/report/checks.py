"""Whether names of classes fit the classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def check_class_names(names: Sequence[str], n_classes: int, of: str, source: Path | None = None) -> None:
    """Raise ``ValueError`` unless all classes of ``of`` have names, or none; ``source`` is the file of the names."""
    if names and n_classes and len(names) != n_classes:
        raise ValueError(
            f"{count_class_names(names, source)} for the {n_classes} classes of {of}: give one a line, in the order of "
            "the model's outputs"
        )


def count_class_names(names: Sequence[str], source: Path | None) -> str:
    """Return how many names there are, and in which file.

    >>> count_class_names(["cat", "dog"], None)
    '2 class names'
    """
    return f"{len(names)} class names" + ("" if source is None else f" in {source}")
