"""Choose the arrays or columns of a file: those of the embedding, and ``features.NAME`` of earlier layers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pnml.io.paths import PathOrUri

PREFIX = "features."
_SHOWN = 12


def choose_columns(path: PathOrUri, candidates: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the arrays or columns that are wanted; raise ``ValueError`` with the candidates for one that is not there.

    In a wanted name ``*`` stands for any text; what it matches comes in the order of the file.

    >>> choose_columns("rows.csv", ["age", "f0", "f1"], ["f*"])
    ['f0', 'f1']
    """
    chosen: list[str] = []
    for name in wanted:
        pattern = ".*".join(map(re.escape, name.split("*")))
        matches = [name] if name in candidates else [one for one in candidates if re.fullmatch(pattern, one)]
        if not matches:
            raise ValueError(f"{path} has no column {name!r} of numbers: choose --column from {list_names(candidates)}")
        chosen += matches
    return list(dict.fromkeys(chosen))


def match_columns(
    path: PathOrUri | str, columns: tuple[str, ...], fitted: Sequence[str], *, is_chosen: bool
) -> tuple[str, ...]:
    """Return the columns of a file in the order of those that a detector was fitted on.

    Where either has no names, the columns stay as they are. So do columns that somebody chose of a file in which none
    has a name of the fit. Otherwise a column more or less raises ``ValueError``.

    >>> match_columns("rows.csv", ("f0", "f10", "f1"), ("f0", "f1", "f10"), is_chosen=False)
    ('f0', 'f1', 'f10')
    """
    missing = [name for name in fitted if name not in columns]
    unknown = [name for name in columns if name not in fitted]
    if not columns or not fitted or (is_chosen and len(unknown) == len(columns)):
        return columns
    problems = []
    if missing:
        problems.append(f"lacks {list_names(missing)}")
    if unknown:
        problems.append(f"has {list_names(unknown)} instead" if missing else f"has {list_names(unknown)} besides")
    if problems:
        raise ValueError(
            f"{path} has not the columns that the detector was fitted on, it {' and '.join(problems)}: rename them, or "
            "choose columns in the order of the fit with --column"
        )
    return tuple(fitted)


def check_distinct(path: PathOrUri, names: Sequence[str]) -> None:
    """Raise ``ValueError`` for a name that two columns have."""
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise ValueError(f"{path} has two columns named {twice[0]!r}: rename one")


def list_names(names: Sequence[str]) -> str:
    """Return names with commas between; of many, the first and the last ones and how many there are.

    >>> list_names([*map(str, range(1000)), "label"])
    '0, 1, 2, 3, 4, 5, ..., 997, 998, 999, label (1,001 in all)'
    """
    if len(names) <= _SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[:6])}, ..., {', '.join(names[-4:])} ({len(names):,} in all)"


def choose_layers(path: PathOrUri, columns: Iterable[str], wanted: Sequence[str] | None) -> tuple[str, ...]:
    """Return the wanted layers, or all that a file has if None; raise ``ValueError`` for one that it does not hold.

    >>> choose_layers("rows.npz", ["embedding", "features.block1", "features.block2", "id"], None)
    ('block1', 'block2')
    """
    layers = tuple(name.removeprefix(PREFIX) for name in columns if name.startswith(PREFIX))
    if wanted is None:
        return layers
    for name in wanted:
        if name in layers:
            continue
        if name.removeprefix(PREFIX) in layers:
            fix = f"the name of a layer is without {PREFIX!r}"
        else:
            column = f"'{PREFIX}{name}'"
            fix = f"write them beside the embeddings as {column}, in .npz an array, in .parquet a column of lists"
        raise ValueError(
            f"{path} has no features of the layer {name!r}; it has those of {', '.join(layers) or 'no layer'}: {fix}"
        )
    return tuple(wanted)


def check_layer_widths(path: PathOrUri, layers: Iterable[tuple[str, int]], fitted: Iterable[int]) -> None:
    """Raise ``ValueError`` that names the first of some layers (name, width) whose width is not that of the fit."""
    for (name, width), expected in zip(layers, fitted, strict=True):
        if width != expected:
            raise ValueError(
                f"{path} has {width} features of the layer {name!r}, where {expected} were fitted: they are of another "
                "network, or pooled in another way"
            )
