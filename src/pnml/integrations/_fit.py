"""Fit a detector on the batches of a data loader."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from pnml.pytorch.layers import LayersNotFoundWarning

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from pnml.core.detector import Detector


def fit_batches(detector: Detector, batches: Iterable[Tensor]) -> Detector:
    """Fit a detector on batches of features (n, M), decompose their correlation, and return the detector.

    >>> import torch
    >>> from pnml import Detector
    >>> batches = torch.eye(4)[:, :3].split(2)
    >>> fit_batches(Detector(torch.eye(3), embedding_scale="natural"), batches).count
    4
    """
    for features in batches:
        detector.partial_fit(features)
    if detector.count == 0:
        raise ValueError("expected at least one in-distribution sample with features that are not all zero, got none")
    _ = detector.model  # warnings are raised during the fit, and the first score is fast
    return detector


def without_layers(reason: str, layers: str | Sequence[str], embedding_scale: str) -> None:
    """Say that earlier layers cannot be watched: raise ``ValueError`` where they are named, warn where they are wanted.

    Args:
        reason: why.
        layers: as for :class:`~pnml.Guard`.
        embedding_scale: earlier layers are for "auto" alone.
    """
    if not isinstance(layers, str):
        raise ValueError(f"layers={list(layers)} cannot be watched: {reason}")  # noqa: TRY004 - of the model
    if layers == "auto" == embedding_scale:
        message = f"{reason}. The embeddings alone are watched, as with layers='last'"
        warnings.warn(message, LayersNotFoundWarning, stacklevel=4)
