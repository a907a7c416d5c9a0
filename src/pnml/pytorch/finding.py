"""Find the last layer of any PyTorch classifier by running it and seeing whose output its answer is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import torch
from torch import Tensor, nn

from pnml.core.detector import Task
from pnml.pytorch.affine import Affine, affine_of, as_places
from pnml.pytorch.call_inputs import sample_count
from pnml.pytorch.calls import seen_modules
from pnml.pytorch.endings import FUNCTIONS, Ending, explain, scale_and_shift
from pnml.pytorch.head import Call, HeadNotFoundError, attempt, logits_of
from pnml.pytorch.last_layer import LastLayer, with_zero_class
from pnml.pytorch.passes import Pass, Passes, by_place
from pnml.pytorch.refusals import diagnosis, multilabel_refusal, refusal
from pnml.pytorch.summed import summed_layer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pnml.pytorch.token_mask import MaskSource

TASKS: tuple[str, ...] = get_args(Task)

_LINEAR = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_FUNCTIONS = list(FUNCTIONS)
_MORE = 7  # samples made of a single one, in search of a head that is a sum
_TRIED = 4  # layers whose output is replaced, in search of one that is scaled afterwards


class _Called(NamedTuple):
    """One of the calls of a module: its output, and what entered and left it by sample and place."""

    name: str
    number: int
    calls: int
    output: Tensor
    x: Tensor
    z: Tensor
    has_tokens_first: bool = False

    def tokens_first(self) -> _Called:
        """Return the same for tokens in the first axis and samples in the second."""
        return self._replace(x=self.x.transpose(0, 1), z=self.z.transpose(0, 1), has_tokens_first=True)


class _Match(NamedTuple):
    """A call that the model's answer is made of, and how."""

    called: _Called
    ending: Ending


@torch.no_grad()
def find_head(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    named: str | None = None,
    task: Task = "multiclass",
    logits: Callable[[Any], Tensor] = logits_of,
    source: MaskSource | None = None,
    reading: str | None = None,
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
        source: what says which tokens count, where no name of an argument does.
        reading: what the model is known to make of the head's output; see :class:`~pnml.pytorch.endings.Ending`.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> find_head(model, (torch.zeros(5, 4),)).name
    '2'
    """
    return _Finder(Passes(model, args, kwargs or {}, logits, source), named, task, reading).find()


class _Finder:
    """The ways to find a head, from the plain one to those that take more forward passes."""

    def __init__(self, passes: Passes, named: str | None, task: Task, reading: str | None) -> None:
        self.passes, self.modules, self.named, self.task = passes, passes.modules, named, task
        self.reading = reading
        self.not_affine: list[str] = []

    def find(self) -> LastLayer:
        """Return the head, or raise :class:`HeadNotFoundError`."""
        linear = [name for name, module in self.modules.items() if isinstance(module, nn.Linear)]
        first = self.passes.run(linear, lambda output: output.ndim == 2)
        self._check_task(first)
        if self.reading == "masked mean" and first.mask is None:
            raise HeadNotFoundError("the head was fitted with a mask of tokens: pass one again")
        found = self._one_of(first, self._returned(first)) or self._one_of(first, self._explained(first))
        if found is not None:
            return found
        reached = [(self.passes.model, ""), *seen_modules(self.passes.model)]
        names = [name for module, name in reached if _may_be_head(module) or name == self.named]
        seen = self.passes.run(names, lambda output: _may_be_logits(output, first.answer))
        for matches in (self._returned, self._explained, self._scaled, self._of_any_module):
            found = self._one_of(seen, matches(seen))
            if found is not None:
                return found
        summed = summed_layer(self.modules, seen.calls, seen.answer, self.task)
        if summed is None and len(seen.answer) == 1:  # too little to tell shares
            more = attempt(lambda: self.passes.run_more(seen, _MORE))
            summed = None if more is None else summed_layer(self.modules, more.calls, more.answer, self.task)
        if summed is not None and self.named in {None, summed.name, *summed.names}:
            return summed
        samples = sample_count(self.passes.args, self.passes.kwargs)
        raise diagnosis(self.modules, seen, self.named, self.not_affine, samples)

    def _one_of(self, seen: Pass, matches: Iterable[_Match]) -> LastLayer | None:
        """Return the head of the only module that matches and is affine, None if none does."""
        found = {head.name: head for match in matches if (head := self._last_layer(match)) is not None}
        if len(found) > 1:
            raise refusal("more than one linear layer has", seen.answer, self.modules, list(found))
        return next(iter(found.values()), None)

    def _check_task(self, seen: Pass) -> None:
        kind = getattr(getattr(self.passes.model, "config", None), "problem_type", None)
        if kind == "regression":
            raise HeadNotFoundError("the model's config says that it is a regression, which has no regret")
        if kind == "multi_label_classification" and self.task == "multiclass":
            raise multilabel_refusal(seen.answer, "its config says so")

    def _calls(self, seen: Pass) -> Iterator[_Called]:
        """Yield the calls of the layers that are linear, or of the one that is named."""
        for name, calls in seen.calls.items():
            wanted = isinstance(self.modules[name], _LINEAR) if self.named is None else name == self.named
            yield from self._called(name, calls) if wanted else ()

    def _called(self, name: str, calls: Sequence[Call]) -> Iterator[_Called]:
        for number, call in enumerate(calls):
            places = as_places(self.modules[name], call.embeddings, call.output)
            if places is not None and call.embeddings.is_floating_point():
                yield _Called(name, number, len(calls), call.output, *places)

    def _returned(self, seen: Pass) -> Iterator[_Match]:
        """Yield calls whose output is what the model returned, the very same tensor."""
        for called in self._calls(seen):
            if called.output is seen.answer:
                one = by_place(seen.answer, self.modules[called.name]).ndim == 2
                yield _Match(called, Ending("rows" if one else "every"))

    def _explained(self, seen: Pass) -> Iterator[_Match]:
        yield from self._explain(seen, self._calls(seen))

    def _explain(
        self, seen: Pass, calls: Iterable[_Called], scale: Tensor | None = None, shift: Tensor | None = None
    ) -> Iterator[_Match]:
        """Yield calls that the answer follows from, with the simplest ending by which any does."""
        found = []
        for called in calls:
            answer = by_place(seen.answer, self.modules[called.name])
            both = called.output.ndim == 3 and answer.ndim == 2
            for one in (called, called.tokens_first()) if both else (called,):
                endings = list(explain(one.z, answer, seen.mask, scale, shift, known=self.reading))
                found += [_Match(one, ending) for ending in endings]
                if endings:  # samples come first where both would do
                    break
        simplest = min((_FUNCTIONS.index(match.ending.function) for match in found), default=0)
        yield from (match for match in found if match.ending.function == _FUNCTIONS[simplest])

    def _scaled(self, seen: Pass) -> Iterator[_Match]:
        """Yield calls whose output is scaled and shifted afterwards: by a temperature or a normalisation.

        Two forward passes, in which numbers of ours take the place of the output, show by how much.
        """
        classes = {called.name: called.z.shape[-1] for called in self._calls(seen)}
        for name in list(classes)[-_TRIED:]:
            module, width = self.modules[name], classes[name]
            ramp = torch.linspace(1, 2, width, dtype=seen.answer.dtype, device=seen.answer.device)
            answers = [self.passes.run_replaced(name, row) for row in (torch.zeros_like(ramp), ramp)]
            if any(by_place(answer, module).shape[-1] != width for answer in answers):
                continue
            if not self._is_all_that_counts(name, ramp, answers[1]):
                continue
            first, second = (by_place(answer, module).reshape(-1, width)[0].cpu().double() for answer in answers)
            for function in _FUNCTIONS:
                found = scale_and_shift(function, first, second, ramp.cpu().double())
                calls = () if found is None else self._called(name, seen.calls[name])
                matches = [] if found is None else list(self._explain(seen, calls, *found))
                if matches and matches[0].ending.function == function:
                    yield from matches
                    return

    def _is_all_that_counts(self, name: str, row: Tensor, answer: Tensor) -> bool:
        """Return whether a model answers the same to all samples if a module puts out the same row for them.

        It does not where other layers add to the answer. A single sample is compared with its mirror image, if the
        model takes that.
        """
        other = answer if len(answer) > 1 else attempt(lambda: self.passes.mirrored().run_replaced(name, row))
        if other is None:
            return False
        rows = torch.cat([by_place(part, self.modules[name]).flatten(0, -2) for part in (answer, other)]).cpu().double()
        rows = rows[rows.isfinite().all(dim=1)]
        slack = 8 * torch.finfo(torch.float32).eps * rows.abs().max() if len(rows) else 0.0
        return bool(((rows - rows[:1]).abs() <= slack).all())

    def _of_any_module(self, seen: Pass) -> Iterator[_Match]:
        """Yield the smallest module that the answer follows from and that is affine, whatever its class."""
        names = [name for name in seen.calls if self.named is None or name == self.named]
        sizes = {name: sum(p.numel() for p in self.modules[name].parameters()) for name in names}
        refused, self.not_affine = self.not_affine, []
        for name in sorted(names, key=sizes.__getitem__):
            for match in self._explain(seen, self._called(name, seen.calls[name])):
                if self._last_layer(match) is not None:
                    yield match
                    return
        self.not_affine = refused

    def _last_layer(self, match: _Match) -> LastLayer | None:
        """Return the head of a match; None if it is not affine."""
        called, ending = match
        one_logit = called.z.shape[-1] == 1 and self.task == "multiclass"
        if ending.function == "sigmoid" and not one_logit and self.task == "multiclass":
            raise multilabel_refusal(called.z, f"the sigmoid of {called.name!r} is what it returns")
        if "softmax" in ending.function and self.task == "multilabel":
            raise HeadNotFoundError(
                f"task='multilabel' was given, and the model ends in {ending.function}: leave the task out"
            )
        if ending.reading == "every" and self.task == "multilabel":
            raise HeadNotFoundError(
                f"every token or pixel has {called.z.shape[-1]} labels of its own, for which there is no regret yet: "
                "guard each label by itself, with a model that returns its logit alone"
            )
        found = affine_of(self.modules[called.name], called.x.flatten(0, 1), called.z.flatten(0, 1))
        if found is None:
            self.not_affine.append(called.name)
            return None
        affine, source = found
        if ending.scale is not None and ending.shift is not None:
            scale, shift = ending.scale.to(affine.weight), ending.shift.to(affine.weight)
            affine = Affine(scale[:, None] * affine.weight, scale * affine.bias + shift)
        if one_logit or self.task == "multilabel":
            affine = with_zero_class(affine)
        where = {"call": called.number, "calls": called.calls, "rank": called.output.ndim}
        first = called.has_tokens_first
        return LastLayer(called.name, affine, ending, source, one_logit=one_logit, tokens_first=first, **where)


def _may_be_head(module: nn.Module) -> bool:
    """Return whether a module may be a head: it has a matrix, or is a linear layer of some library."""
    if isinstance(module, torch.jit.ScriptModule):  # which takes no hooks
        return False
    return hasattr(module, "in_features") or any(p.ndim > 1 for p in module.parameters())


def _may_be_logits(output: Tensor, answer: Tensor) -> bool:
    """Return whether an answer may be made of an output: both have the samples and the classes."""
    classes = {answer.shape[1], answer.shape[-1]} if answer.ndim > 1 else {1}
    return output.ndim > 1 and answer.shape[0] in output.shape[:2] and not classes.isdisjoint(output.shape[1:])
