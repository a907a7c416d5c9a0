"""Names of the arrays or columns of a file that hold features of earlier layers: ``features.`` and the layer's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pnml.io.paths import PathOrUri

PREFIX = "features."


def choose_layers(path: PathOrUri, columns: Iterable[str], wanted: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the layers to read from a file; raise ``ValueError`` for one that it does not hold.

    Args:
        path: the file.
        columns: the names of its arrays or columns.
        wanted: names of layers, in the order in which they are needed; all that are there, in their order, when None.

    >>> choose_layers("rows.npz", ["embedding", "features.block1", "features.block2", "id"], None)
    ('block1', 'block2')
    """
    there = tuple(name.removeprefix(PREFIX) for name in columns if name.startswith(PREFIX))
    if wanted is None:
        return there
    if missing := [name for name in wanted if name not in there]:
        held = f"has those of {', '.join(there)}" if there else "has those of no layer"
        raise ValueError(
            f"{path} has no features of the layer {missing[0]!r}; it {held}: write them beside the embeddings as "
            f"'{PREFIX}{missing[0]}', in .npz an array, in .parquet a column of lists"
        )
    return tuple(wanted)
