"""Which tokens count in a layer that has fewer of them than the model was given, as speech models have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch import nn

_LENGTHS = "_get_feat_extract_output_lengths"
"""The method of the speech models of Transformers that says how many frames are made of so many samples of sound."""


def mask_of_length(model: nn.Module, mask: Tensor | None, length: int) -> Tensor | None:
    """Return which of ``length`` tokens count, (n, length); None where that is not known.

    Args:
        model: the classifier, or a module around it.
        mask: which of the tokens count that the model was given, (n, T), padding last.
        length: how many tokens a layer puts out.
    """
    if mask is None or mask.shape[1] == length:
        return mask
    shortened = next((found for m in model.modules() if (found := getattr(m, _LENGTHS, None)) is not None), None)
    if shortened is None:
        return None
    kept = shortened(torch.cat([mask.new_full((1,), mask.shape[1], dtype=torch.long), mask.sum(dim=1)]))
    if not isinstance(kept, Tensor) or kept.shape != (1 + len(mask),) or int(kept[0]) != length:
        return None
    return torch.arange(length, device=mask.device) < kept[1:, None]
