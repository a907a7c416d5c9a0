"""Which tokens count in a layer that has fewer of them than the model was given, as speech models have, or more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from torch import nn

_LENGTHS = "_get_feat_extract_output_lengths"
"""The method of the speech models of Transformers that says how many frames are made of so many samples of sound."""


def mask_of_length(model: nn.Module, mask: Tensor | None, length: int, reach: int = 0) -> Tensor | None:
    """Return which of ``length`` tokens count, (n, length); None where that is not known.

    Tokens beyond those that the model was given are padding of its own, as of attention in windows. Where there are as
    many as in the longest sample, padding was cut off, as by ``pad_packed_sequence``.

    Args:
        model: the classifier, or a module around it.
        mask: which of the tokens count that the model was given, (n, T), padding last.
        length: how many tokens a layer puts out.
        reach: how many tokens further each of them reaches, as in a convolution. It counts where all of these do; of a
            sample with fewer tokens the first one counts. If it is negative, so many tokens stand before the model's.
    """
    if mask is None or mask.shape[1] == length:
        return mask
    if reach:
        return _in_reach(mask, reach) if mask.shape[1] == length + reach else None
    if mask.shape[1] < length:
        return functional.pad(mask, [0, length - mask.shape[1]])
    if int(mask.sum(dim=1).max()) == length and not bool(mask[:, length:].any()):
        return mask[:, :length]
    kept = _frames(model, torch.cat([mask.new_full((1,), mask.shape[1], dtype=torch.long), mask.sum(dim=1)]))
    if kept is None or int(kept[0]) != length:
        return None
    return torch.arange(length, device=mask.device) < kept[1:, None]


def _in_reach(mask: Tensor, reach: int) -> Tensor:
    """Return which windows of tokens have no padding in them, or else the first one, shape (n, T - reach).

    >>> _in_reach(torch.tensor([[True, True, False]]), -1)
    tensor([[ True,  True,  True, False]])
    """
    if reach < 0:
        return functional.pad(mask, [-reach, 0], value=True)
    length = mask.shape[1] - reach
    whole = mask[:, :length]
    for step in range(1, reach + 1):
        whole = whole & mask[:, step : step + length]
    return torch.cat([whole[:, :1] | ~whole.any(dim=1, keepdim=True), whole[:, 1:]], dim=1)


def _frames(model: nn.Module, lengths: Tensor) -> Tensor | None:
    """Return how many frames a speech model makes of samples of these lengths, None for any other model."""
    shortened = next((found for m in model.modules() if (found := getattr(m, _LENGTHS, None)) is not None), None)
    kept = None if shortened is None else shortened(lengths)
    return kept if isinstance(kept, Tensor) and kept.shape == lengths.shape else None
