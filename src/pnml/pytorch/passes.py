"""Forward passes of a classifier in which calls of its modules are noted, or their outputs replaced."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from pnml.pytorch.call_inputs import first_input
from pnml.pytorch.head import Call, record_calls, run_on_copies, unfused_attention, with_tensors
from pnml.pytorch.token_mask import token_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pnml.pytorch.token_mask import MaskSource


class Pass(NamedTuple):
    """A forward pass.

    Attributes:
        calls: of modules, by name, in the order of the model.
        answer: what the model returned as logits.
        mask: which tokens count, (n, T), where the model was told.
    """

    calls: dict[str, list[Call]]
    answer: Tensor
    mask: Tensor | None


@dataclass(eq=False)
class Passes:
    """A model, and a batch to run it on.

    Attributes:
        model: a classifier.
        args: its positional arguments.
        kwargs: its keyword arguments.
        logits: takes the logits out of what it returns.
        source: what says which tokens count, where no name of an argument does.
        modules: of the model, by name.
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    logits: Callable[[Any], Tensor]
    source: MaskSource | None = None
    modules: dict[str, nn.Module] = field(init=False)

    def __post_init__(self) -> None:
        self.modules = dict(self.model.named_modules())

    def run(self, names: Iterable[str], keep: Callable[[Tensor], bool]) -> Pass:
        """Run the model and note the calls of modules whose output is to be kept."""
        with record_calls({name: self.modules[name] for name in names}, keep) as calls:
            answer = self._answer()
        if not answer.is_floating_point() or not answer.ndim:
            raise TypeError(
                f"the model returned {answer.dtype} of shape {tuple(answer.shape)}: expected logits, one row per sample"
            )
        return Pass(calls, answer, token_mask(self.model, self.args, self.kwargs, self.source))

    def run_replaced(self, name: str, row: Tensor) -> Tensor:
        """Return what the model returns if a module puts out the same row (C,) for every sample and place."""
        with _replaced_output(self.modules[name], row):
            return self._answer()

    def mirrored(self, steps: int = 0) -> Passes:
        """Return the same with other samples.

        Args:
            steps: by how many the first argument that has two or more axes is shifted along its last one, reversed.
        """
        first = first_input(self.args, self.kwargs, least=2)

        def other(x: Tensor) -> Tensor:
            return x.flip(-1).roll(steps, -1) if x is first else x

        args, kwargs = with_tensors(other, (self.args, self.kwargs))
        return Passes(self.model, args, kwargs, self.logits, self.source)

    def run_more(self, seen: Pass, times: int) -> Pass:
        """Return a pass together with some on other samples."""
        passes = [seen, *(self.mirrored(steps).run(seen.calls, _keep_all) for steps in range(times))]
        calls = {name: _joined([one.calls[name] for one in passes]) for name in seen.calls}
        return Pass(calls, torch.cat([one.answer for one in passes]), None)

    def _answer(self) -> Tensor:
        with unfused_attention():
            return self.logits(run_on_copies(self.model, self.args, self.kwargs))


def _keep_all(_output: Tensor) -> bool:
    return True


def _joined(every: Sequence[Sequence[Call]]) -> list[Call]:
    """Return the calls of a module in several passes, each with the samples of all; none where they do not fit."""
    shapes = {tuple((x.shape[1:], z.shape[1:]) for x, z in calls) for calls in every}
    if len(shapes) > 1:
        return []
    return [Call(*(torch.cat(parts) for parts in zip(*calls, strict=True))) for calls in zip(*every, strict=True)]


@contextmanager
def _replaced_output(module: nn.Module, row: Tensor) -> Iterator[None]:
    """Let a module put out the same row for every sample and place while the context is open, in this thread."""
    thread = get_ident()

    def replace(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        if get_ident() != thread:
            return output
        shape = [1] * output.ndim
        shape[1 if is_convolution(module) else -1] = len(row)
        return row.to(output).reshape(shape).expand(output.shape).clone()

    handle = module.register_forward_hook(replace)
    try:
        yield
    finally:
        handle.remove()


def is_convolution(module: nn.Module) -> bool:
    """Return whether a module has its channels in the second axis."""
    return isinstance(module, nn.modules.conv._ConvNd)  # noqa: SLF001 - the only common base of all convolutions


def by_place(answer: Tensor, module: nn.Module) -> Tensor:
    """Return an answer of a module's kind as (n, C), or as (n, places, C) where every token or pixel has one.

    >>> import torch
    >>> by_place(torch.zeros(4, 5, 2, 3), nn.Conv2d(1, 5, 1)).shape, by_place(torch.zeros(4), nn.Linear(2, 1)).shape
    (torch.Size([4, 6, 5]), torch.Size([4, 1]))
    """
    if answer.ndim == 1:
        return answer[:, None]
    if answer.ndim == 2:
        return answer
    rows = answer.flatten(2).transpose(1, 2) if is_convolution(module) else answer.flatten(1, -2)
    return rows[:, 0] if rows.shape[1] == 1 else rows
