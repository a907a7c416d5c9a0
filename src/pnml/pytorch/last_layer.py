"""The last layer of a classifier as a guard uses it: what enters it, which logits it gives, in every forward pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from pnml.pytorch.affine import Affine, as_places
from pnml.pytorch.endings import Ending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml.pytorch.head import Call

_READINGS = {
    "place": "one token of each sample",
    "mean": "mean over tokens or pixels",
    "masked mean": "mean over tokens that count",
    "every": "every token or pixel",
}


class Rows(NamedTuple):
    """What a head was given and gave.

    Attributes:
        embeddings: shape (n, M).
        logits: shape (n, C).
        places: the shape of the answers where there is more than one for a sample, (n, T) or (n, H, W); None otherwise.
    """

    embeddings: Tensor
    logits: Tensor
    places: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class LastLayer:
    """The last layer of a classifier, and what the model makes of its output.

    Attributes:
        name: of the module in the model.
        affine: from embeddings to logits, with all that follows the module and is affine.
        ending: what the model makes of the module's output.
        normalised: whether embeddings are scaled to norm 1 first: the module is a cosine classifier.
        one_logit: whether the module gives one logit z, which stands for two classes with logits (0, z).
        call: which of the module's calls in a forward pass it is, from 0.
        calls: how many there are.
        tokens_first: whether the module's input has its samples in the second axis, after the tokens.
    """

    name: str
    affine: Affine
    ending: Ending = field(default_factory=Ending)
    normalised: bool = False
    one_logit: bool = False
    call: int = 0
    calls: int = 1
    tokens_first: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What is particular about this head, in words; empty for a plain linear layer."""
        found = [_READINGS.get(self.ending.reading, "")]
        found += ["embeddings of norm 1" if self.normalised else "", "scaled" if self.ending.scale is not None else ""]
        found += [f"before {self.ending.function}" if self.ending.function else ""]
        found += ["one logit as two classes" if self.one_logit else ""]
        return tuple(note for note in found if note)

    @property
    def warning(self) -> str | None:
        """What a user should know who takes the model's output for logits of its classes."""
        if self.one_logit:
            undone = f", before the {self.ending.function}," if self.ending.function else ""
            return (
                f"the model gives one number a sample: the output z of its head {self.name!r}{undone} is taken for the "
                "logits (0, z) of two classes. A regression has no regret"
            )
        if self.ending.function:
            return (
                f"the model ends in {self.ending.function}: the output of its head {self.name!r} is taken as the "
                "logits instead, so that softmax is not applied twice"
            )
        return None

    def read(self, module: nn.Module, calls: Sequence[Call], answer: Tensor, mask: Tensor | None) -> Rows:
        """Return the embeddings and logits of a forward pass.

        Args:
            module: of this name.
            calls: of the module in the pass.
            answer: what the model returned as logits.
            mask: which tokens count, (n, T).
        """
        call = self._call(calls, answer)
        plain = self.ending.reading == "rows" and not self.ending.function
        if plain and answer.ndim == call.embeddings.ndim == 2 and not (self.normalised or self.one_logit):
            return Rows(call.embeddings, answer)
        found = as_places(module, call.embeddings, call.output)
        if found is None:
            raise ValueError(f"the head {self.name!r} was called with {tuple(call.embeddings.shape)}, which is new")
        x, z, taken = *found, None
        if self.tokens_first:
            x, z = x.transpose(0, 1), z.transpose(0, 1)
        if self.ending.reading == "place":
            taken, distance = self.ending.places_taken(z, answer.reshape(len(answer), -1))
            if not torch.compiler.is_compiling() and bool((distance > 0).any()):
                raise ValueError(f"the output of the head {self.name!r} at no place is what the model returned")
        if self.ending.reading == "masked mean" and mask is None:
            raise ValueError(f"the head {self.name!r} was fitted with a mask of tokens: pass one again")
        x, logits = self.ending.take(x, taken, mask), self.ending.logits(self.ending.take(z, taken, mask))
        if self.normalised:
            x = nn.functional.normalize(x)
        if self.one_logit:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        places = None
        if self.ending.reading == "every":
            shape = tuple(call.embeddings.shape)
            places = (shape[0], *shape[2:]) if isinstance(module, nn.modules.conv._ConvNd) else shape[:-1]  # noqa: SLF001
        return Rows(x, logits, places)

    def _call(self, calls: Sequence[Call], answer: Tensor) -> Call:
        returned = [call for call in calls if call.output is answer]
        if len(returned) == 1:
            return returned[0]
        if len(calls) != self.calls:
            raise ValueError(
                f"{len(calls)} calls of the head {self.name!r} were seen in a forward pass, where {self.calls} "
                "is expected; a head inside a compiled part of the model is not seen"
            )
        return calls[self.call]


def with_zero_class(affine: Affine) -> Affine:
    """Return an affine map with one more class in front, whose logit is always 0.

    >>> with_zero_class(Affine(torch.ones(1, 3), torch.ones(1))).weight
    tensor([[0., 0., 0.],
            [1., 1., 1.]])
    """
    weight, bias = affine
    return Affine(torch.cat([torch.zeros_like(weight[:1]), weight]), torch.cat([torch.zeros_like(bias[:1]), bias]))
