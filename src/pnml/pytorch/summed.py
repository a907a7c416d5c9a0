"""A last layer that is a sum: the outputs of several linear layers, averaged or added up, as after a distillation."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from pnml.pytorch.affine import Affine, affine_of
from pnml.pytorch.endings import is_close
from pnml.pytorch.head import Call
from pnml.pytorch.last_layer import SUMMED, LastLayer, Rows, with_zero_class

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pnml.core.detector import Task

_LARGEST = 64  # denominator of a share, as of the mean of 64
_LEAST = 0.01  # share of an output that counts


class Part(NamedTuple):
    """A linear layer of a sum, and the shares that its calls in a forward pass have in the answer."""

    name: str
    shares: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class SummedLayer(LastLayer):
    """Linear layers whose outputs a model adds up: one linear layer on what enters them, joined.

    Attributes:
        parts: these layers.
    """

    parts: tuple[Part, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the layers."""
        return tuple(part.name for part in self.parts)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is particular about this head, in words."""
        return (SUMMED, *super().notes)

    def read(self, model: nn.Module, calls: Mapping[str, Sequence[Call]], answer: Tensor, mask: Tensor | None) -> Rows:
        """Return the embeddings, joined, and the logits of a forward pass."""
        del model, mask
        entered, outputs = [], []
        for name, shares in self.parts:
            seen = [call for call in calls[name] if call.output.shape == answer.shape]
            if len(seen) != len(shares):
                raise ValueError(
                    f"{len(seen)} calls of {name!r}, a part of the head, were seen in a forward pass, where "
                    f"{len(shares)} is expected"
                )
            entered.append(_mean([call.embeddings for call in seen], shares))
            outputs += [share * call.output for share, call in zip(shares, seen, strict=True)]
        z = torch.stack(outputs)
        self._check_same(Call(z, z), z, z.sum(dim=0), answer)
        logits = torch.cat([torch.zeros_like(answer), answer], dim=1) if self.one_logit else answer
        return Rows(torch.cat(entered, dim=1), logits)


def summed_layer(
    modules: Mapping[str, nn.Module], calls: Mapping[str, Sequence[Call]], answer: Tensor, task: Task
) -> SummedLayer | None:
    """Return the linear layers that add up to the answer of a model, (n, C); None if there are none.

    Args:
        modules: of the model, by name.
        calls: of modules in a forward pass.
        answer: what the model returned as logits.
        task: "multilabel" if every output is a label of its own.
    """
    like = {name: alike for name in calls if (alike := calls_like(answer, modules[name], calls[name]))}
    shares = shares_of([call.output for alike in like.values() for call in alike], answer)
    if shares is None:
        return None
    left = iter(shares)
    every = [Part(name, tuple(next(left) for _ in alike)) for name, alike in like.items()]
    parts = tuple(part for part in every if any(part.shares))
    maps = []
    for part in parts:
        first = like[part.name][0]
        found = affine_of(modules[part.name], first.embeddings, first.output)
        if found is None or found[1] == "cosine" or sum(part.shares) == 0:
            return None
        maps.append((sum(part.shares), found[0]))
    weight = torch.cat([share * affine.weight for share, affine in maps], dim=1)
    affine = Affine(weight, torch.stack([share * affine.bias for share, affine in maps]).sum(dim=0))
    one_logit = answer.shape[1] == 1 and task == "multiclass"
    affine = with_zero_class(affine) if one_logit or task == "multilabel" else affine
    return SummedLayer(" + ".join(part.name for part in parts), affine, one_logit=one_logit, parts=parts)


def calls_like(answer: Tensor, module: nn.Module, calls: Sequence[Call]) -> list[Call]:
    """Return the calls of a linear layer whose output has the shape of the answer, (n, C)."""
    is_linear = isinstance(module, nn.Linear) and answer.ndim == 2
    return [call for call in calls if is_linear and call.output.shape == answer.shape]


def shares_of(outputs: Sequence[Tensor], answer: Tensor) -> list[float] | None:
    """Return the factors by which two or more of some outputs (n, C) add up to the answer (n, C); None if none do.

    >>> x, y, z = torch.eye(3), torch.ones(3, 3), torch.arange(9.0).reshape(3, 3)
    >>> shares_of([x, y, z], (x + z) / 2)
    [0.5, 0.0, 0.5]
    """
    if len(outputs) < 2 or answer.numel() < 2 * len(outputs):
        return None
    columns, target = torch.stack([z.flatten() for z in outputs], dim=1).cpu().double(), answer.cpu().double()
    if not columns.isfinite().all() or not target.isfinite().all():
        return None
    eps = max(torch.finfo(answer.dtype).eps, torch.finfo(torch.float32).eps)
    found = torch.linalg.lstsq(columns, target.flatten()[:, None], driver="gelsd").solution[:, 0]
    shares = [_simple(share, eps) for share in found.tolist()]
    made = (columns @ torch.tensor(shares, dtype=torch.float64)).reshape(target.shape)
    largest = columns.abs().amax(dim=1).reshape(target.shape)
    return shares if sum(map(bool, shares)) > 1 and is_close(made, target, largest, eps) else None


def _simple(share: float, eps: float) -> float:
    """Return a share without its rounding: 0 for next to nothing, and a simple fraction where it is near to one."""
    if abs(share) < _LEAST:
        return 0.0
    near = float(Fraction(share).limit_denominator(_LARGEST))
    return near if abs(near - share) <= 64 * eps else share


def _mean(rows: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    """Return the mean of rows, weighted by their shares."""
    if len(rows) == 1:
        return rows[0]
    return torch.stack([share * x for share, x in zip(shares, rows, strict=True)]).sum(dim=0) / sum(shares)
