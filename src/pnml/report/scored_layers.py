"""What a table of scores says about the layers of the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.io.scores import LEVERAGE, STRANGEST, layer_labels

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


class ScoredLayers(NamedTuple):
    """The earlier layers from the input on, and the strangest layer of each sample.

    Attributes:
        names: of the earlier layers; none where their order is not known.
        leverage: the shares of the embedding and of every earlier layer, shape (n, 1 + layers), or None.
        strangest: the layer in which each sample is strangest, shape (n,): 0 is the embedding; or None.
    """

    names: tuple[str, ...] = ()
    leverage: NDArray[np.float64] | None = None
    strangest: NDArray[np.int64] | None = None


def layers_of(path: Path, table: dict[str, NDArray[Any]], fitted: tuple[str, ...] | None) -> ScoredLayers:
    """Return the layers of a table; ``ScoredLayers()`` if it has none, or if nothing says in which order they are.

    Args:
        path: of the table.
        table: its columns.
        fitted: the names of the earlier layers of the detector, None without one.

    >>> table = {"strangest_layer": np.array(["embedding", "conv1"])}
    >>> layers_of("scores.csv", table, ("conv1", "conv2")).strangest
    array([0, 1])
    """
    if STRANGEST not in table:
        return ScoredLayers()
    columns = [name for name in table if name.startswith(LEVERAGE)]
    names = [name.removeprefix(LEVERAGE) for name in columns] or ([] if fitted is None else [*layer_labels(fitted)])
    if not names:
        return ScoredLayers()
    found = table[STRANGEST].tolist()
    if unknown := sorted(set(found) - set(names)):
        raise ValueError(f"{path} names the layer {unknown[0]!r}, which is none of {names}: pass the detector it is of")
    leverage = np.stack([table[name] for name in columns], axis=1) if columns else None
    return ScoredLayers(tuple(names[1:]), leverage, np.array([names.index(name) for name in found], dtype=np.int64))
