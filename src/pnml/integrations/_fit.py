"""Fit a detector on the batches of a data loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from pnml.core.detector import Detector


def fit_batches(detector: Detector, batches: Iterable[Tensor]) -> Detector:
    """Fit a detector on batches of features (n, M), decompose their correlation, and return the detector.

    >>> import torch
    >>> from pnml import Detector
    >>> batches = torch.eye(4)[:, :3].split(2)
    >>> fit_batches(Detector(torch.eye(3), embedding_scale="natural"), batches).correlation.count
    4
    """
    for features in batches:
        detector.partial_fit(features)
    if detector.correlation.count == 0:
        raise ValueError("expected at least one in-distribution sample with features that are not all zero, got none")
    _ = detector.model  # warnings are raised during the fit, and the first score is fast
    return detector
