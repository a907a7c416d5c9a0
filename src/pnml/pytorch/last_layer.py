"""The last layer of a classifier as a guard uses it: what enters it, which logits it gives, in every forward pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from pnml.backend.arrays import is_traced
from pnml.pytorch.affine import Affine, as_places
from pnml.pytorch.endings import Ending
from pnml.pytorch.head import HeadNotFoundError
from pnml.pytorch.module_tree import submodule
from pnml.pytorch.passes import is_convolution

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pnml.pytorch.affine import Source
    from pnml.pytorch.head import Call

_SCALED, _PROBED, _COSINE = "scaled", "affine", "embeddings of norm 1"
_ROUNDING = 1e-3  # of the largest output, in a mean over many places
_RULED_OUT = -1000  # logits, of classes that a model does not allow
SUMMED = "added up"
"""The note of a head of several layers."""

_READINGS = {
    "place": "one token of each sample",
    "mean": "mean over tokens or pixels",
    "masked mean": "mean over tokens that count",
    "every": "every token or pixel",
}


def reading_of(notes: Sequence[str]) -> str | None:
    """Return how a head with these notes is read, None if its output has one place for every sample.

    >>> reading_of(["mean over tokens or pixels", "scaled"])
    'mean'
    """
    return next((reading for reading, words in _READINGS.items() if words in notes), None)


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
        source: where the affine map is from; of a "cosine" classifier the embeddings are scaled to norm 1 first.
        one_logit: whether the module gives one logit z, which stands for two classes with logits (0, z).
        call: which of the module's calls in a forward pass it is, from 0.
        calls: how many there are.
        rank: how many axes the module's output has; calls with others are passed over.
        tokens_first: whether the module's input has its samples in the second axis, after the tokens.
    """

    name: str
    affine: Affine
    ending: Ending = field(default_factory=Ending)
    source: Source = "own"
    one_logit: bool = False
    call: int = 0
    calls: int = 1
    rank: int = 2
    tokens_first: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What is particular about this head, in words; empty for a plain linear layer."""
        found = [_READINGS.get(self.ending.reading, "")]
        found += [{"cosine": _COSINE, "probed": _PROBED}.get(self.source, "")]
        found += [_SCALED if self.ending.scale is not None else ""]
        found += [f"before {self.ending.function}" if self.ending.function else ""]
        found += ["one logit as two classes" if self.one_logit else ""]
        return tuple(note for note in found if note)

    @property
    def described(self) -> str:
        """The name of this head, and what is particular about it."""
        return self.name + (f" ({', '.join(self.notes)})" if self.notes else "")

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

    @property
    def reads_mask(self) -> bool:
        """Whether it matters which tokens count."""
        return self.ending.reading in {"masked mean", "every"}

    @property
    def obstacle_to_layers(self) -> str | None:
        """Why earlier layers have no row for every embedding; None where they have."""
        if self.ending.reading == "every":
            return "every token or pixel has an answer of its own, and layers have one row per sample"
        return "the head's input has its samples in the second axis, after the tokens" if self.tokens_first else None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the modules that it is made of."""
        return (self.name,)

    def modules(self, model: nn.Module) -> dict[str, nn.Module]:
        """Return these modules by their names."""
        return {name: submodule(model, name) for name in self.names}

    def read(self, model: nn.Module, calls: Mapping[str, Sequence[Call]], answer: Tensor, mask: Tensor | None) -> Rows:
        """Return the embeddings and logits of a forward pass.

        Args:
            model: the classifier.
            calls: of its modules in the pass.
            answer: what the model returned as logits.
            mask: which tokens count, (n, T).
        """
        module, call = submodule(model, self.name), self._call(calls[self.name], answer)
        plain = self.ending.reading == "rows" and not self.ending.function
        if plain and answer.ndim == call.embeddings.ndim == 2 and not (self.one_logit or self.source == "cosine"):
            self._check_same(call, call.output, self.ending.logits(call.output), answer)
            return Rows(call.embeddings, answer)
        found = as_places(module, call.embeddings, call.output)
        if found is None:
            raise ValueError(f"the head {self.name!r} was called with {tuple(call.embeddings.shape)}, which is new")
        x, z, taken = *found, None
        if self.ending.reading == "rows" and z.shape[1] != 1:
            raise ValueError(
                f"the head {self.name!r} gave {z.shape[1]} answers a sample, where the first batch had one: begin with "
                "a batch in which samples have more tokens or pixels"
            )
        if self.tokens_first:
            x, z = x.transpose(0, 1), z.transpose(0, 1)
        if self.ending.reading == "place":
            taken, distance = self.ending.places_taken(z, answer.reshape(answer.shape[0], -1))
            self._check_taken(distance, answer)
            x = x.masked_fill(distance.isnan()[:, None, None], torch.nan)  # no answer, so no place to take
        if self.ending.reading == "masked mean" and mask is None:
            raise ValueError(f"the head {self.name!r} was fitted with a mask of tokens: pass one again")
        x, logits = self.ending.take(x, taken, mask), self.ending.logits(self.ending.take(z, taken, mask))
        self._check_same(call, z, logits, answer)
        if self.source == "cosine":
            x = nn.functional.normalize(x)
        if self.one_logit:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        shape, places = tuple(call.output.shape), None
        if self.ending.reading == "every":
            places = (shape[0], *shape[2:]) if is_convolution(module) else shape[:-1]
        return Rows(x, logits, places)

    def _check_taken(self, distance: Tensor, answer: Tensor) -> None:
        """Raise ``ValueError`` if a sample's answer is that of no place, but for rounding."""
        if is_traced():
            return
        slack = 64 * torch.finfo(answer.dtype).eps * max(1.0, float(answer.nan_to_num(0, 0, 0).abs().max()))
        if bool((distance > slack).any()):
            raise ValueError(f"the output of the head {self.name!r} at no place is what the model returned")

    def _check_same(self, call: Call, z: Tensor, logits: Tensor, answer: Tensor) -> None:
        """Raise ``ValueError`` if what is read of the head is not what the model returned, but for rounding."""
        is_checked = self.ending.reading == "rows" or "mean" in self.ending.reading
        if not is_checked or call.output is answer or is_traced():
            return
        answer = answer.flatten(1) if answer.ndim > 1 else answer[:, None]
        is_same = logits.shape == answer.shape
        if is_same and answer.numel():
            slack = max(_ROUNDING, *(8 * torch.finfo(x.dtype).eps for x in (z, answer)))
            size = self.ending.logits(z).nan_to_num(0, 0, 0).abs().max().clamp(min=1)  # a GPU is waited for only once
            if self.ending.reading == "rows" and not self.ending.function:  # a model may clamp, and rule out classes
                answer = answer.nan_to_num()
                logits = torch.where(answer < _RULED_OUT, answer, logits.clamp(*answer.aminmax()))
            is_same = not bool((self.ending.distance(logits, answer) > slack * size).any())
        if not is_same and self.ending.reading == "rows":
            raise HeadNotFoundError(
                f"what the head {self.name!r} puts out is not what the model returned, as in the first batch. A model "
                "that stops early answers by one layer or another: let it always answer by the same one. Or it sorts "
                "its samples and puts them back after the head: put them back before it"
            )
        if not is_same:
            raise ValueError(
                f"the {_READINGS[self.ending.reading]} of what the head {self.name!r} puts out is not what the model "
                "returned, as in the first batch: begin with a batch of several samples whose tokens or pixels differ, "
                "and with padding, if there is any"
            )

    def _call(self, calls: Sequence[Call], answer: Tensor) -> Call:
        calls = [call for call in calls if call.output.ndim == self.rank]
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


def has_own_weights(notes: Sequence[str]) -> bool:
    """Return whether a head with these notes has the weight and the bias of a linear layer of its model."""
    return not {_SCALED, _PROBED, _COSINE, SUMMED} & set(notes)
