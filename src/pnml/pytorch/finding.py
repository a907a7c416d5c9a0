"""Find the last layer of any PyTorch classifier by running it and seeing whose output its answer is made of."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from pnml.pytorch.affine import Affine, affine_of, as_places
from pnml.pytorch.endings import FUNCTIONS, Ending, explain, scale_and_shift
from pnml.pytorch.head import Call, HeadNotFoundError, eager, logits_of, record_calls, unfused_attention
from pnml.pytorch.last_layer import LastLayer, with_zero_class
from pnml.pytorch.pooling import token_mask
from pnml.pytorch.refusals import diagnosis, multilabel_refusal, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Task = Literal["multiclass", "multilabel"]
FUNCTION_NAMES = list(FUNCTIONS)

_LINEAR = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRIED = 4  # layers whose output is replaced, in search of one that is scaled afterwards


class Pass(NamedTuple):
    """A forward pass: calls of modules by name, in the order of the model, its answer, and which tokens count."""

    calls: dict[str, list[Call]]
    answer: Tensor
    mask: Tensor | None


class _Match(NamedTuple):
    """A call of a module that the model's answer is made of: what entered and left it, by sample and place."""

    name: str
    number: int
    x: Tensor
    z: Tensor
    ending: Ending
    calls: int
    tokens_first: bool = False


def find_head(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    named: str | None = None,
    task: Task = "multiclass",
    logits: Callable[[Any], Tensor] = logits_of,
) -> LastLayer:
    """Return the layer whose output the answer of ``model(*args, **kwargs)`` is made of.

    It is an ``nn.Linear``, a convolution that is linear, or any module that turns out to be affine. Its output may be
    scaled after it, and softmax may follow.

    Args:
        model: a classifier.
        args: its positional arguments.
        kwargs: its keyword arguments.
        named: the module to take, which is then only checked.
        task: "multilabel" if every output is a label of its own.
        logits: takes the answer out of what the model returns.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> find_head(model, (torch.zeros(5, 4),)).name
    '2'
    """
    finder = _Finder(model, args, kwargs or {}, named, task, logits)
    return finder.find()


class _Finder:
    """The ways to find a head, from the plain one to those that take more forward passes."""

    def __init__(
        self,
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        named: str | None,
        task: Task,
        logits: Callable[[Any], Tensor],
    ) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self.named, self.task, self.logits = named, task, logits
        self.modules = dict(model.named_modules())
        self.not_affine: list[str] = []

    def find(self) -> LastLayer:
        """Return the head, or raise :class:`HeadNotFoundError`."""
        linear = [name for name, module in self.modules.items() if isinstance(module, _LINEAR)]
        if self.named is not None and self.named not in linear:
            linear.append(self.named)
        seen = self.run(linear)
        self._check_task(seen)
        for matches in (self._returned(seen), self._explained(seen), self._scaled(seen), self._of_any_module()):
            found = {head.name: head for match in matches if (head := self._last_layer(match)) is not None}
            if len(found) == 1:
                return next(iter(found.values()))
            if found:
                raise refusal("more than one linear layer has", seen.answer, self.modules, list(found))
        raise diagnosis(self.modules, seen, self.named, self.not_affine)

    def run(self, names: Iterable[str], replaced: Mapping[str, Tensor] | None = None) -> Pass:
        """Run the model and note the calls of modules; outputs of those in ``replaced`` are replaced by rows (C,)."""
        with ExitStack() as stack:
            calls = {name: stack.enter_context(record_calls(self.modules[name])) for name in names}
            for name, row in (replaced or {}).items():
                stack.enter_context(_replace_output(self.modules[name], row))
            stack.enter_context(unfused_attention())
            answer = self.logits(eager(self.model)(*self.args, **self.kwargs))
        if not answer.is_floating_point() or not answer.ndim:
            raise TypeError(
                f"the model returned {answer.dtype} of shape {tuple(answer.shape)}: expected one row of logits per sample"
            )
        return Pass(calls, answer, token_mask(self.model, self.args, self.kwargs))

    def _check_task(self, seen: Pass) -> None:
        kind = getattr(getattr(self.model, "config", None), "problem_type", None)
        if kind == "regression":
            raise HeadNotFoundError("the model's config says that it is a regression, which has no regret")
        if kind == "multi_label_classification" and self.task == "multiclass":
            raise multilabel_refusal(seen.answer, "its config says so")

    def _calls(self, seen: Pass) -> Iterator[tuple[str, int, Call]]:
        for name, calls in seen.calls.items():
            if self.named is None or name == self.named:
                yield from ((name, number, call) for number, call in enumerate(calls))

    def _returned(self, seen: Pass) -> Iterator[_Match]:
        """Yield calls whose output is what the model returned, the very same tensor."""
        for name, number, call in self._calls(seen):
            places = as_places(self.modules[name], call.embeddings, call.output)
            if call.output is seen.answer and places is not None:
                one = _by_place(seen.answer, self.modules[name]).ndim == 2
                yield _Match(name, number, *places, Ending("rows" if one else "every"), len(seen.calls[name]))

    def _explained(self, seen: Pass, scale: Tensor | None = None, shift: Tensor | None = None) -> Iterator[_Match]:
        """Yield calls that the answer follows from, with the simplest ending by which any does."""
        found = []
        for name, number, call in self._calls(seen):
            places = as_places(self.modules[name], call.embeddings, call.output)
            if places is None or not call.embeddings.is_floating_point():
                continue
            answer, count = _by_place(seen.answer, self.modules[name]), len(seen.calls[name])
            for tokens_first in (False, True) if call.output.ndim == 3 and answer.ndim == 2 else (False,):
                x, z = (part.transpose(0, 1) if tokens_first else part for part in places)
                endings = explain(z, answer, seen.mask, scale, shift)
                found += [_Match(name, number, x, z, ending, count, tokens_first) for ending in endings]
        simplest = min((FUNCTION_NAMES.index(match.ending.function) for match in found), default=0)
        yield from (match for match in found if match.ending.function == FUNCTION_NAMES[simplest])

    def _scaled(self, seen: Pass) -> Iterator[_Match]:
        """Yield calls whose output is scaled and shifted afterwards: by a temperature or a normalisation.

        Two forward passes, in which numbers of ours take the place of the output, show by how much.
        """
        fitting = [name for name, _, call in self._calls(seen) if call.output.numel() and _fits(call, seen.answer)]
        for name in list(dict.fromkeys(fitting))[-_TRIED:]:
            classes = _by_place(seen.answer, self.modules[name]).shape[-1]
            ramp = torch.linspace(1, 2, classes, dtype=seen.answer.dtype, device=seen.answer.device)
            try:
                answers = [self.run([], {name: row}).answer for row in (torch.zeros_like(ramp), ramp)]
            except Exception:  # noqa: BLE001 - whatever a model raises that does not take these numbers
                continue
            rows = [_by_place(answer, self.modules[name]).reshape(-1, classes)[0].double() for answer in answers]
            only = seen._replace(calls={name: seen.calls[name]})
            for function in FUNCTION_NAMES:
                found = scale_and_shift(function, *rows, ramp.double())
                matches = [] if found is None else list(self._explained(only, *found))
                if any(match.ending.function == function for match in matches):
                    yield from (match for match in matches if match.ending.function == function)
                    return

    def _of_any_module(self) -> Iterator[_Match]:
        """Yield the smallest module that the answer follows from and that is affine, whatever its class."""
        names = [name for name, module in self.modules.items() if not isinstance(module, nn.Linear) and _has_weight(module)]
        if any(isinstance(module, torch.jit.ScriptModule) for module in self.modules.values()):
            return
        seen = self.run(names)
        sizes = {name: sum(p.numel() for p in self.modules[name].parameters()) for name in names}
        for match in sorted(self._explained(seen), key=lambda match: sizes[match.name]):
            if self._last_layer(match) is not None:
                yield match
                return

    def _last_layer(self, match: _Match) -> LastLayer | None:
        """Return the head of a match; None if it is not affine."""
        function, classes = match.ending.function, match.z.shape[-1]
        if function == "sigmoid" and classes > 1 and self.task == "multiclass":
            raise multilabel_refusal(match.z, f"the sigmoid of {match.name!r} is what it returns")
        if "softmax" in function and self.task == "multilabel":
            raise HeadNotFoundError(f"task='multilabel' was given, and the model ends in {function}: leave it out")
        found = affine_of(self.modules[match.name], match.x.flatten(0, 1), match.z.flatten(0, 1))
        if found is None:
            self.not_affine.append(match.name)
            return None
        affine, normalised = found
        if match.ending.scale is not None and match.ending.shift is not None:
            scale, shift = match.ending.scale.to(affine.weight), match.ending.shift.to(affine.weight)
            affine = Affine(scale[:, None] * affine.weight, scale * affine.bias + shift)
        one_logit = classes == 1 and self.task == "multiclass"
        if one_logit or self.task == "multilabel":
            affine = with_zero_class(affine)
        return LastLayer(match.name, affine, match.ending, normalised, one_logit, match.number, match.calls, match.tokens_first)


def _by_place(answer: Tensor, module: nn.Module) -> Tensor:
    """Return an answer as (n, C), or as (n, places, C) where every token or pixel has one."""
    if answer.ndim == 1:
        return answer[:, None]
    if isinstance(module, nn.modules.conv._ConvNd) and answer.ndim > 2:  # noqa: SLF001
        rows = answer.flatten(2).transpose(1, 2)
        return rows[:, 0] if rows.shape[1] == 1 else rows
    return answer if answer.ndim == 2 else answer.flatten(1, -2)


def _fits(call: Call, answer: Tensor) -> bool:
    return answer.shape[0] in call.output.shape[:2] and (answer.ndim == 1 or answer.shape[1] in call.output.shape)


def _has_weight(module: nn.Module) -> bool:
    """Return whether a module may be a head: it has a matrix, or is a linear layer of some other library."""
    return hasattr(module, "in_features") or any(p.ndim > 1 for p in module.parameters())


@contextmanager
def _replace_output(module: nn.Module, row: Tensor) -> Iterator[None]:
    """Let a module put out the same row (C,) for every sample and place while the context is open."""

    def replace(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        at = 1 if isinstance(module, nn.modules.conv._ConvNd) else output.ndim - 1  # noqa: SLF001
        shape = [1] * output.ndim
        shape[at] = len(row)
        return row.to(output).reshape(shape).expand(output.shape).clone()

    handle = module.register_forward_hook(replace)
    try:
        yield
    finally:
        handle.remove()
