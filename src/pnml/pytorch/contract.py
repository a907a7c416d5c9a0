"""How a guard reads its model: declared, or worked out with the first batch of a fit, and stored with the detector."""

from __future__ import annotations

from typing import Any, NamedTuple

INPUT = "input"
"""The name of the layer that is the model's own input, where that is a table of numbers."""

EMBED = "embed="
"""The name of a head where the user's own function gives what enters it."""


class Layer(NamedTuple):
    """The output of a module, and how to read it."""

    name: str  # of the module in the model
    call: int = 0  # which of the module's calls in a forward pass
    batch_axis: int = 0  # of the samples
    channel_axis: int = 1  # all others are pixels or tokens

    def __str__(self) -> str:
        return self.name if self.call == 0 else f"{self.name}#{self.call}"


class Head(NamedTuple):
    """The last layer of a model, and what the model makes of its output.

    ``reading`` is "row" where the layer puts out one row a sample; of several tokens or pixels the number of one,
    "token" for the one that the answer is equal to, "mean", "masked mean", or "every" where each has an answer.
    ``function`` is what follows the logits: "softmax", "log_softmax", "sigmoid", "" for nothing, or "declared" where
    the layer's own output is taken for the logits whatever follows.
    """

    name: str  # of the module in the model, empty if the model is the layer, or EMBED
    call: int = 0  # which of the module's calls in a forward pass
    reading: str | int = "row"
    function: str = ""
    samples_axis: int = 0  # 1 where tokens come before samples
    one_logit: bool = False  # z, which stands for two classes with logits (0, z)
    is_probed: bool = False  # weight and bias come of unit vectors, as of a layer with LoRA around it

    @property
    def notes(self) -> tuple[str, ...]:
        """What is particular about this head, in words; empty for a plain linear layer."""
        notes = [] if self.reading == "row" else [_READINGS.get(self.reading, f"token {self.reading} of each sample")]
        if self.is_probed:
            notes.append("affine")
        if self.function == "declared":
            notes.append("as declared")
        elif self.function:
            notes.append(f"before {self.function}")
        if self.one_logit:
            notes.append("one logit as two classes")
        return tuple(notes)


_READINGS: dict[str | int, str] = {
    "token": "one token of each sample",
    "mean": "mean over tokens or pixels",
    "masked mean": "mean over tokens that count",
    "every": "every token or pixel",
}
READINGS = ("mean", "masked mean", "every")
"""What a user may declare, besides the number of a token."""


class Mask(NamedTuple):
    """What says which tokens count.

    ``kind`` is "counts" or "padding" for an argument (n, T) in which they or the others are marked, "lengths" for one
    of (n,), "token" for a number that stands for padding, "function" for a function of the user's.
    """

    kind: str
    argument: str = ""  # its name
    token: int = 0  # the number


class Contract(NamedTuple):
    """How a guard reads its model."""

    head: Head
    layers: tuple[Layer, ...] = ()  # whose outputs are watched
    mask: Mask | None = None
    has_input: bool = False  # whether the model's first argument is watched, too
    dtype: str = "float32"  # of the embeddings, the coarsest precision on their way to the logits
    counters: tuple[str, ...] = ()  # buffers that the model writes into when it runs, which are no weights

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The names of all that is watched besides the embeddings."""
        return (*map(str, self.layers), *([INPUT] if self.has_input else []))

    def to_json(self) -> dict[str, Any]:
        """Return what is stored with a detector."""
        stored = self._asdict()
        stored["head"] = self.head._asdict()
        stored["layers"] = [layer._asdict() for layer in self.layers]
        stored["mask"] = None if self.mask is None else self.mask._asdict()
        stored["counters"] = list(self.counters)
        return stored

    @classmethod
    def from_json(cls, stored: dict[str, Any] | None) -> Contract:
        """Return what was stored.

        >>> contract = Contract(Head("fc"), (Layer("conv"),), Mask("counts", "attention_mask"))
        >>> Contract.from_json(contract.to_json()) == contract
        True
        """
        if stored is None:
            raise ValueError("it was fitted without a guard: fit again, pnml.guard(model).fit(train_loader)")
        try:
            return cls(
                Head(**stored["head"]),
                tuple(Layer(**layer) for layer in stored["layers"]),
                None if stored["mask"] is None else Mask(**stored["mask"]),
                stored["has_input"],
                stored["dtype"],
                tuple(stored["counters"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"it was fitted by another version of pnml, fit again: {error}") from error
