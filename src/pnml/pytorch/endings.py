"""What a model makes of its head's output: which token it takes, what it scales, and whether it ends in softmax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda z: z,
    "softmax": lambda z: z.softmax(dim=-1),
    "log_softmax": lambda z: z.log_softmax(dim=-1),
    "sigmoid": torch.sigmoid,
}
"""What may follow the logits, by name."""


@dataclass(frozen=True, eq=False)
class Ending:
    """How a model gets from the output z of its head, (n, places, C), to what it returns.

    Attributes:
        reading: "rows" (one place), "place" (one is taken for every sample), "mean", "masked mean" (of places that
            count), or "every" (every token or pixel has an answer).
        function: "softmax", "log_softmax" or "sigmoid", "" for none.
        scale: of the logits, (C,), for a temperature or a normalisation after the head; None for none.
        shift: likewise.
    """

    reading: str = "rows"
    function: str = ""
    scale: Tensor | None = None
    shift: Tensor | None = None

    def logits(self, z: Tensor) -> Tensor:
        """Return the logits (..., C) of the head's output."""
        if self.scale is None or self.shift is None:
            return z
        wide = _wide(z)
        return (wide * self.scale.to(wide) + self.shift.to(wide)).to(z.dtype)

    def places_taken(self, z: Tensor, answer: Tensor) -> tuple[Tensor, Tensor]:
        """Return which place each answer (n, C) is of, (n,), and how far it is from it, (n,)."""
        return self.distance(self.logits(z), answer[:, None]).min(dim=1)[::-1]

    def distance(self, logits: Tensor, answer: Tensor) -> Tensor:
        """Return how far what follows logits (..., C) is from an answer (..., C), the largest difference, (...)."""
        return (FUNCTIONS[self.function](_wide(logits)) - _wide(answer)).abs().amax(dim=-1)

    def take(self, values: Tensor, taken: Tensor | None, mask: Tensor | None) -> Tensor:
        """Return what is read of values (n, places, M): (n, M), or (n · places, M) where every place has an answer."""
        if self.reading == "rows":
            return values[:, 0]
        if self.reading == "every":
            return values.flatten(0, 1)
        if self.reading == "mean":
            return values.mean(dim=1)
        if self.reading == "masked mean":
            assert mask is not None  # noqa: S101 - checked by the caller
            share = mask.to(values)[:, :, None]
            return (values * share).sum(dim=1) / share.sum(dim=1).clamp(min=1)
        assert taken is not None  # noqa: S101 - of "place"
        return values.gather(1, taken[:, None, None].expand(-1, 1, values.shape[2]))[:, 0]


def explain(
    z: Tensor,
    answer: Tensor,
    mask: Tensor | None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    *,
    known: str | None = None,
) -> Iterator[Ending]:
    """Yield the endings by which a model gets from z (n, places, C) to its answer, (n, C) or (n, places, C).

    Args:
        z: the output of the head.
        answer: of the model.
        mask: which places count, (n, places), if that is known.
        scale: of the logits, if there is one.
        shift: likewise.
        known: the only reading to try, where it is known: a batch with one place, or of equal ones, shows none.
    """
    if z.shape[0] != answer.shape[0] or z.shape[-1] != answer.shape[-1] or z.device != answer.device:
        return
    readings = ["place", "mean", *(["masked mean"] if mask is not None and mask.shape == z.shape[:2] else [])]
    if answer.ndim == 3:
        readings = ["every"] if answer.shape == z.shape else []
    elif z.shape[1] == 1 and known is None:
        readings = ["rows"]
    if known is not None:
        readings = [reading for reading in readings if reading == known]
    for function in FUNCTIONS:
        for reading in readings:
            ending = Ending(reading, function, scale, shift)
            if _leads_to(ending, z, answer, mask):
                yield ending


def scale_and_shift(function: str, at_zero: Tensor, at_ramp: Tensor, ramp: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return scale and shift (C,) of a model that answers function(scale · z + shift); None if no z counts.

    Args:
        function: what follows the logits. Before softmax the scale is taken to be one number.
        at_zero: the answer where z is 0, (C,).
        at_ramp: the answer where z is ``ramp``.
        ramp: numbers that differ, (C,).

    >>> z = torch.tensor([1.0, 2.0])
    >>> scale_and_shift("", torch.tensor([5.0, 6.0]), torch.tensor([8.0, 12.0]), z)
    (tensor([3., 3.]), tensor([5., 6.]))
    """
    back = {"softmax": torch.log, "sigmoid": torch.logit}.get(function, torch.clone)
    shift, steps = back(at_zero), back(at_ramp) - back(at_zero)
    scale = steps / ramp
    if "softmax" in function:
        if len(ramp) < 2:
            return None
        scale = ((steps[-1] - steps[0]) / (ramp[-1] - ramp[0])).expand(len(ramp))
        shift = shift - shift.mean()  # softmax does not tell what all classes have in common
    usable = shift.isfinite() & scale.isfinite() & (scale != 0)
    return (scale.clone(), shift) if bool(usable.all()) else None


def _leads_to(ending: Ending, z: Tensor, answer: Tensor, mask: Tensor | None) -> bool:
    taken = ending.places_taken(z, answer)[0] if ending.reading == "place" else None
    logits = ending.take(ending.logits(_wide(z)), taken, mask)
    eps = max(torch.finfo(z.dtype).eps, torch.finfo(answer.dtype).eps)
    return is_close(FUNCTIONS[ending.function](logits), answer.flatten(0, -2), logits, eps)


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def is_close(made: Tensor, answer: Tensor, logits: Tensor, eps: float) -> bool:
    """Return whether two tensors (n, C) are equal up to rounding, in the rows that hold numbers; some have to.

    Rounding grows with the precision ``eps`` and with the logits that they were made from; probabilities may differ by
    0.001 at most.
    """
    kept = answer.isfinite().all(dim=1) & made.isfinite().all(dim=1) & logits.isfinite().all(dim=1)
    if not bool(kept.any()):
        return False
    made, answer, logits = (part[kept].cpu().double() for part in (made, answer, logits))  # not every device has it
    size = max(float(logits.abs().max()), float(answer.abs().max()))
    slack = (32 if eps < 1e-5 else 4) * eps * size
    if bool(((answer >= 0) & (answer <= 1)).all()):
        slack = min(slack, 0.001)
    return bool((made - answer).abs().max() <= max(slack, 4 * eps))
