"""Fitting a detector on the batches of somebody else's loader."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from pnml.pytorch.guard import ZeroEmbeddingWarning

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from pnml.core.detector import Detector


def learn(detector: Detector, batches: Iterable[Tensor]) -> Detector:
    """Fit a detector on batches of features (n, M), as many as there are; rows of zeros have no direction to learn.

    >>> import torch
    >>> from pnml import Detector
    >>> batches = torch.eye(3).split(2)
    >>> learn(Detector(torch.eye(3)), batches).correlation.count
    3
    """
    left_out = 0
    for features in batches:
        has_length = (features != 0).any(dim=1)
        left_out += int((~has_length).sum())
        if has_length.any():
            detector.partial_fit(features[has_length])
    if detector.correlation.count == 0:
        raise ValueError("there is no in-distribution sample to fit on: the loader must yield some, with features")
    if left_out:
        message = f"{left_out} training samples have features of zeros only, which have no direction: left out"
        warnings.warn(message, ZeroEmbeddingWarning, stacklevel=3)
    return detector
