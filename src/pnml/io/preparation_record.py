"""How samples became embeddings, as a detector's file keeps it: to do so again, and to refuse what differs."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, TypeAlias

from pnml.io.feature_columns import list_names, match_columns
from pnml.io.preparation import Preparation

if TYPE_CHECKING:
    from collections.abc import Callable

Record: TypeAlias = dict[str, Any]
"""Of images, what :meth:`~pnml.io.preparation.Preparation.record` returns, and where they keep their size the ``shape``
(height, width) of the first one. Of embeddings, the ``columns``; ``all`` says that nobody chose them among others."""


class PreparationWarning(UserWarning):
    """Images may be prepared in another way than those that a detector was fitted on."""


def of_images(record: Record | None) -> Record | None:
    """Return a record of images, and None for any other."""
    return record if record is not None and "channels" in record else None


def columns_of(record: Record | None) -> tuple[str, ...]:
    """Return the columns of embeddings; none where they have no names, and for a record of images."""
    return () if record is None else tuple(record.get("columns", ()))


def restore_preparation(
    record: Record | None,
    *,
    size: int | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    transform: Callable[[Any], Any] | None = None,
) -> Preparation:
    """Return the preparation of a record, with the values that are given instead of those that it holds."""
    if transform is not None:
        return Preparation(transform=transform)
    values = of_images(record) or {}
    return Preparation(
        values.get("size") if size is None else size,
        tuple(values.get("mean", (0.0,))) if mean is None else mean,
        tuple(values.get("std", (1.0,))) if std is None else std,
    )


def check_preparation(fitted: Record | None, now: Record | None) -> None:
    """Raise ``ValueError`` for samples prepared in another way than those that a detector was fitted on.

    Warn where images keep their size, and the first one differs in shape from the first of the training set. A record
    of embeddings passes where the other is of images, or has no columns.
    """
    if fitted is None or now is None:
        return
    columns = columns_of(now)
    if columns != match_columns("the file", columns, columns_of(fitted), is_chosen="all" not in now):
        raise ValueError(
            f"the columns {list_names(columns)} are not in the order of the fit, {list_names(columns_of(fitted))}: "
            "open_embeddings(path, fitted=detector.preparation) reads them in that order"
        )
    fitted, now = of_images(fitted), of_images(now)
    if fitted is None or now is None:
        return
    if fitted.get("transform") != now.get("transform"):
        names = [one.get("transform") for one in (fitted, now)]
        words = ["no transform of the factory" if name is None else f"the transform {name}" for name in names]
        raise ValueError(
            f"the detector was fitted on images prepared with {words[0]}, got {words[1]}: let the factory return the "
            "one that the detector was fitted with, or fit again"
        )
    for name in ("channels", "resize", "mean", "std"):
        _compare(name, _text(fitted.get(name)), _text(now.get(name)))
    before = pixels_of(fitted)
    after = pixels_of(now)
    if before is None or after is None or before == after:
        return
    pixels = [f"{height}×{width}" for height, width in (before, after)]
    if fitted.get("size") is not None or now.get("size") is not None:
        _compare("size", *pixels)
    message = (
        f"the first image has {pixels[1]} pixels (height × width), that of the training set {pixels[0]}, and neither "
        f"is resized: a size makes them alike, as in --size {before[0]}"
    )
    warnings.warn(message, PreparationWarning, stacklevel=3)


def pixels_of(record: Record) -> tuple[int, int] | None:
    """Return the height and width of prepared images; None where they are not known."""
    if record.get("size") is not None:
        return record["size"], record["size"]
    shape = record.get("shape")
    return None if shape is None else (shape[0], shape[1])


def describe_preparation(record: Record) -> str:
    """Return a line that says how images are prepared, or which columns hold the embeddings.

    >>> describe_preparation({"channels": "RGB", "size": 32, "mean": [0.5], "std": [0.2, 0.3, 0.2]})
    'RGB, resized to 32×32 pixels, scaled to [0, 1], mean 0.5, std 0.2,0.3,0.2'
    """
    if "columns" in record:
        return list_names(record["columns"])
    if record.get("transform") is not None:
        return f"{record['channels']}, then the transform of the model's factory: {record['transform']}"
    pixels = pixels_of(record)
    sized = "not resized"
    if pixels is not None:
        sized = "not resized, the first has" if record["size"] is None else "resized to"
        sized += f" {pixels[0]}×{pixels[1]} pixels"
    values = f"mean {_text(record['mean'])}, std {_text(record['std'])}"
    return f"{record['channels']}, {sized}, scaled to [0, 1], {values}"


def _compare(name: str, before: str, after: str) -> None:
    if before != after:
        raise ValueError(
            f"the detector was fitted on images prepared with {name} {before}, got {name} {after}: leave it out to "
            "prepare images as then, or fit again with it"
        )


def _text(value: Any) -> str:
    """Return a value as text; numbers of channels as an option takes them, one for all that are the same."""
    if not isinstance(value, (list, tuple)):
        return str(value)
    return ",".join(f"{number:.15g}" for number in (value[:1] if len(set(value)) == 1 else value))
