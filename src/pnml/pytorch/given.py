"""A last layer that the user gives, with a function that returns what enters it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pnml.pytorch.affine import Affine, own_affine
from pnml.pytorch.endings import explain
from pnml.pytorch.head import HeadNotFoundError, copied, run_on_copies
from pnml.pytorch.last_layer import LastLayer, Rows, with_zero_class
from pnml.pytorch.refusals import multilabel_refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.core.detector import Task

_EXAMPLE = "pnml.guard(model, head=(weight, bias), embed=lambda model, x: model.features(x))"


class GivenHead:
    """A weight and a bias, and embeddings that a function of the model and its inputs returns.

    Args:
        model: the classifier, out of its wrappers.
        head: its last layer: the name of a linear layer, or weight (C, M) and bias (C,) or None.
        embed: ``embed(model, *args, **kwargs)`` returns what enters the last layer: (n, M), or (n, T, M) or
            (n, H, W, M) where every token or pixel has an answer.
        task: "multiclass" or "multilabel".
    """

    def __init__(
        self,
        model: nn.Module,
        head: str | tuple[Tensor, Tensor | None] | None,
        embed: Callable[..., Tensor] | None,
        task: Task,
    ) -> None:
        if embed is None or head is None:
            raise ValueError(f"a head of your own and embed= go together: {_EXAMPLE}")
        self.model, self.embed, self.task = model, embed, task
        self._linear = _affine(model, head)
        self.one_logit = len(self._linear.weight) == 1 and task == "multiclass"
        self.affine = with_zero_class(self._linear) if self.one_logit or task == "multilabel" else self._linear

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Rows:
        """Return the embeddings and the logits of a batch."""
        embeddings: Any = self.embed(self.model, *args, **kwargs)
        width = self._linear.weight.shape[1]
        if not isinstance(embeddings, Tensor) or embeddings.ndim < 2 or embeddings.shape[-1] != width:
            got = f"of shape {tuple(embeddings.shape)}" if isinstance(embeddings, Tensor) else type(embeddings).__name__
            raise ValueError(f"embed must return embeddings of shape (n, {width}), for the head's weight, got {got}")
        places = tuple(embeddings.shape[:-1]) if embeddings.ndim > 2 else None
        embeddings = embeddings.reshape(-1, width)
        weight, bias = (part.to(embeddings) for part in self._linear)
        logits = nn.functional.linear(embeddings, weight, bias)
        if self.one_logit:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        return Rows(embeddings, logits, places)

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any], logits: Callable[[Any], Tensor]) -> LastLayer:
        """Return the head; raise :class:`HeadNotFoundError` unless it gives what the model gives for a batch."""
        answer = logits(run_on_copies(self.model, args, kwargs))
        rows = self.run(*copied((args, kwargs)))
        made = rows.logits[:, 1 if self.one_logit else 0 :]
        given = tuple(answer.shape)
        if answer.ndim > 2 and answer.shape[1] == made.shape[1] and given[:-1] != rows.places:
            answer = answer.movedim(1, -1)  # pixels: channels come first
        answer = answer.reshape(-1, made.shape[1]) if answer.numel() == made.numel() else answer
        ending = next(explain(made[:, None], answer, None), None)
        if ending is None:
            off = f", {float((made - answer).abs().max()):.3g} apart" if made.shape == answer.shape else ""
            shape = (*(rows.places or made.shape[:1]), made.shape[1])
            raise HeadNotFoundError(
                f"head · embed(model, ...) + bias gives logits of shape {shape}, and the model gives "
                f"{given}{off}: they must agree, but for a softmax. If the model returns something else, "
                "take its logits out of it, pnml.guard(..., logits=lambda output: output.scores)"
            )
        if ending.function == "sigmoid" and made.shape[1] > 1 and self.task == "multiclass":
            raise multilabel_refusal(made, "the sigmoid of these logits is what it returns")
        ending = ending if rows.places is None else replace(ending, reading="every")
        return LastLayer("", self.affine, ending, one_logit=self.one_logit)


def _affine(model: nn.Module, head: str | tuple[Tensor, Tensor | None]) -> Affine:
    if isinstance(head, str):
        found = own_affine(model.get_submodule(head))
        if found is None:
            raise ValueError(f"head {head!r} is no linear layer of the model: give its weight and bias, {_EXAMPLE}")
        return found
    weight: Any = head[0]
    bias = head[1]
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        raise ValueError(f"the head's weight must be a tensor of shape (classes, features): {_EXAMPLE}")
    weight = weight.detach()
    return Affine(weight, weight.new_zeros(len(weight)) if bias is None else bias.detach())
