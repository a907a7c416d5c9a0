"""What the contents of a report must be: finite numbers, of shapes that fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.report.model import ScoredSet


def checked_spectrum(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return eigenvalues as an array; raise ``ValueError`` unless they are finite and descend from above 0."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not (np.isfinite(values).all() and (np.diff(values) <= 0).all() and values[:1].sum() > 0):
        raise ValueError(
            f"the spectrum has shape {values.shape} and starts with {values.flat[:1]}: "
            "expected finite eigenvalues of shape (M,), descending, the first above 0"
        )
    return values


def check_class_names(names: Sequence[str], n_classes: int, of: str, source: Path | None = None) -> None:
    """Raise ``ValueError`` unless every class has a name, or none has.

    Args:
        names: by class number.
        n_classes: how many classes there are; 0 if that is not known.
        of: what has the classes, for the error.
        source: the file that has the names, for the error.
    """
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


def check_finite(name: str, column: str, values: NDArray[np.float64] | None) -> None:
    """Raise ``ValueError`` if one of the values of a column is not finite."""
    if values is not None and not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"row {row} of {name!r} has a {column} of {values[row]}: expected a finite number")


def check_p_value(scored: ScoredSet) -> None:
    """Raise ``ValueError`` if a p-value is not between 0 and 1."""
    if scored.p_value is not None and not ((scored.p_value >= 0) & (scored.p_value <= 1)).all():
        row = int(np.flatnonzero(~((scored.p_value >= 0) & (scored.p_value <= 1)))[0])
        raise ValueError(
            f"row {row} of {scored.name!r} has a p-value of {scored.p_value[row]}: expected a number from 0 to 1"
        )


def check_leverage(scored: ScoredSet) -> None:
    """Raise ``ValueError`` unless leverages are numbers of 0 or more, and come with the strangest layers."""
    leverage = scored.leverage
    if leverage is None:
        return
    if scored.strangest is None:
        raise ValueError(f"{scored.name!r} has leverages but no strangest layers: pass both, or neither")
    if leverage.ndim != 2 or not (np.isfinite(leverage).all() and (leverage >= 0).all()):
        raise ValueError(
            f"the leverage of {scored.name!r} has shape {leverage.shape}: expected finite numbers of 0 or more, of "
            "shape (n, 1 + layers)"
        )


def check_layers(scored: ScoredSet, count: int) -> None:
    """Raise ``ValueError`` unless a set is of ``count`` layers, the embedding included."""
    if scored.leverage is not None and scored.leverage.shape[1] != count:
        raise ValueError(
            f"{scored.name!r} has leverages of {scored.leverage.shape[1]} layers, the embedding included: expected "
            f"{count}, one for it and one for each of layer_names"
        )
    if scored.strangest is not None and not ((scored.strangest >= 0) & (scored.strangest < count)).all():
        raise ValueError(
            f"{scored.name!r} has strangest layers from {scored.strangest.min()} to {scored.strangest.max()}: expected "
            f"0, the embedding, to {count - 1}, the last of layer_names"
        )


def check_images(scored: ScoredSet) -> None:
    """Raise ``ValueError`` unless there is an image, a path or a mapping for the samples of a set."""
    images = scored.images
    if isinstance(images, np.ndarray):
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3 or len(images) != len(scored):
            raise ValueError(
                f"the images of {scored.name!r} are {images.dtype} {images.shape}: "
                f"expected uint8 ({len(scored)}, H, W, 3)"
            )
    elif images is not None and not isinstance(images, Mapping) and len(images) != len(scored):
        raise ValueError(f"{scored.name!r} has {len(scored)} regrets but {len(images)} paths of images")
