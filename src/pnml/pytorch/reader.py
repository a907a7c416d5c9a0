"""How a guard reads its model: worked out with the first batch, or restored, and then followed in every pass."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from pnml.backend.arrays import is_traced
from pnml.core.last_layer import head_digest
from pnml.pytorch.batches import few_samples, named_arguments, positional_names, sample_count
from pnml.pytorch.contract import EMBED, INPUT, Contract, Head
from pnml.pytorch.head import (
    HeadNotFoundError,
    HeadWarning,
    find_head,
    own_affine,
    probed_affine,
    read_head,
    warning_of,
    with_zero_class,
)
from pnml.pytorch.layers import (
    COUNT,
    MOST_TRACED,
    LayersNotFoundError,
    check_layer_names,
    choose_layers,
    input_table,
    warn_of_fallback,
)
from pnml.pytorch.masks import counts_of, find_mask
from pnml.pytorch.models import copied
from pnml.pytorch.recording import Outputs, Recorder, copied_columns
from pnml.pytorch.steadiness import unsteady_layers
from pnml.pytorch.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.core.detector import Detector, Task
    from pnml.pytorch.batches import Arguments
    from pnml.pytorch.head import Affine, OwnHead
    from pnml.pytorch.masks import DeclaredMask
    from pnml.pytorch.recording import Parts, Pass

_LOG = logging.getLogger(__name__)


class Declared(NamedTuple):
    """What a user said of a model; see :class:`~pnml.Guard`."""

    head: str | None
    layers: str | int | tuple[str, ...]
    mask: DeclaredMask
    reading: str | int | None
    logits: Callable[[Any], Tensor]
    own_head: OwnHead | None
    task: Task


class Reader:
    """Runs a model, which somebody keeps in eval mode, and returns what a detector needs of it."""

    def __init__(
        self,
        model: nn.Module,
        declared: Declared,
        contract: Contract,
        affine: Affine,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.contract = contract
        self.affine = affine
        self.dtype: torch.dtype = getattr(torch, contract.dtype)
        self._model = model
        self._declared = declared
        self._options = options
        self._names = positional_names(model)
        self._recorder: Recorder | None = None
        if declared.own_head is None:
            self._head = model.get_submodule(contract.head.name)
            self._recorder = Recorder(model, contract.layers, contract.head.name)
            if options is not None:
                self._recorder.compile(options)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outputs:
        """Return the logits, the embeddings and the features of a batch."""
        if self._recorder is None:
            assert self._declared.own_head is not None  # noqa: S101 - or else there is a recorder
            embeddings, logits, places = self._declared.own_head.run(args, kwargs)
            return Outputs(logits, embeddings, (), places, None, embeddings.dtype)
        contract = self.contract
        table = None
        if contract.has_input:  # copied now: a model may write into it
            table = input_table(args, kwargs)
            if table is None:
                raise ValueError(f"the layer {INPUT!r} is the first argument, a table of numbers (n, columns): pass it")
            table = copied_columns(table)
        counts = None if contract.mask is None else self.counts(args, kwargs)
        answer, record = self._recorder.run(args, kwargs, counts)
        if contract.head.call >= len(record.heads):
            raise HeadNotFoundError(
                f"the head {contract.head.name!r} was called {len(record.heads)} times, and its call "
                f"{contract.head.call} is what was fitted: the model answers by another layer, or the head is inside a "
                "compiled part of it. Fit again if the model was changed, guard.fit(train_loader)"
            )
        call = record.heads[contract.head.call]
        embeddings, logits, places = read_head(contract.head, self._head, call, self._declared.logits(answer), counts)
        parts = self._parts(record, table, embeddings)
        if counts is not None:
            counts = counts.flatten() if tuple(counts.shape) == places else None
        dtype = embeddings.dtype
        if call[1].dtype is not dtype and not is_traced():
            dtype = max(dtype, call[1].dtype, key=lambda dtype: torch.finfo(dtype).eps)
        return Outputs(logits, embeddings, parts, places, counts, dtype)

    def _parts(self, record: Pass, table: Tensor | None, embeddings: Tensor) -> list[Parts]:
        """Return the features of the layers and of the input, on the device of the embeddings."""
        parts: list[Parts] = []
        for number, part in enumerate(record.parts):
            if part is None or part[0].shape[0] != embeddings.shape[0]:  # len() would fix the size of an exported batch
                raise LayersNotFoundError(
                    f"layer {str(self.contract.layers[number])!r} did not put out one entry per sample, as it did in "
                    "the first batch: name others, pnml.guard(model, layers=[...]), or take layers='last'"
                )
            is_there = part[0].device == embeddings.device  # or the model is spread over several
            parts.append(part if is_there else tuple([x.to(embeddings.device) for x in part]))
        if table is not None:
            parts.append((table,))
        return parts

    def counts(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """Return which tokens count, (n, T), None where nothing says so."""
        return counts_of(self.contract.mask, self._declared.mask, self._names, args, kwargs)

    def compiled(self, options: dict[str, Any] | None) -> Reader:
        """Return the same that runs the model as ``torch.compile`` compiles it; without options as it is."""
        return Reader(self._model, self._declared, self.contract, self.affine, options)

    def with_contract(self, contract: Contract) -> Reader:
        """Return the same for another contract of the same head and layers."""
        return Reader(self._model, self._declared, contract, self.affine, self._options)

    def __reduce__(self) -> tuple[Any, ...]:
        return Reader, (self._model, self._declared, self.contract, self.affine, self._options)

    @classmethod
    def of_batch(cls, model: nn.Module, declared: Declared, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Reader:
        """Return how a model is read, worked out with a few samples of a batch."""
        names = positional_names(model)
        few = few_samples(args, kwargs, MOST_TRACED)
        if declared.own_head is not None:
            contract = Contract(declared.own_head.check(*few, declared.logits))
            reader = cls(model, declared, contract, declared.own_head.affine)
            _warn(contract.head, None, None)
            return reader._checked(*few, reader.run(*copied(few)))
        mask = find_mask(model, named_arguments(names, args, kwargs), declared.mask)
        try:
            trace = Trace(model, *few)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # noqa: BLE001 - whatever a model raises that takes no other size of batch
            few = args, kwargs
            trace = Trace(model, *few)
        answer = declared.logits(trace.answer)
        counts = counts_of(mask, declared.mask, names, *few)
        head, affine = find_head(
            trace, answer, counts, name=declared.head, reading=declared.reading, task=declared.task
        )
        contract = Contract(head, mask=mask)
        if declared.layers:
            contract = _with_layers(contract, declared.layers, trace, few)
        reader = cls(model, declared, contract, affine)
        outputs = reader.run(*copied(few))
        _warn(head, outputs.logits, answer)
        return reader._checked(*few, outputs)

    def _checked(self, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Outputs) -> Reader:
        """Return the reader without layers that change with company or padding, and with the dtype of embeddings."""
        contract = self.contract._replace(dtype=str(outputs.dtype).removeprefix("torch."))
        unsteady = unsteady_layers(self.run, outputs, (args, kwargs), self.counts(args, kwargs))
        if unsteady:
            names = [str(contract.layers[number]) for number in sorted(unsteady)]
            reason = (
                f"the outputs of layers {names} for a sample depend on the other samples of its batch or on padding"
            )
            if isinstance(self._declared.layers, tuple):
                raise LayersNotFoundError(
                    f"{reason}: name others, pnml.guard(model, layers=[...]), or take layers='last'"
                )
            _LOG.info("%s: they are left out", reason)
            steady = [layer for number, layer in enumerate(contract.layers) if number not in unsteady]
            contract = contract._replace(layers=tuple(steady))
            if not contract.layer_names:
                warn_of_fallback(reason)
        return self.with_contract(contract)

    @classmethod
    def restored(cls, model: nn.Module, declared: Declared, detector: Detector) -> Reader:
        """Return how a model is read that a detector was fitted for; raise ``ValueError`` if it is not this one."""
        contract = Contract.from_json(detector.reading)
        name = contract.head.name
        if (name == EMBED) != (declared.own_head is not None) or declared.head not in {None, name}:
            example = "embed= and head=(weight, bias)" if name == EMBED else f"head={name!r}, or none"
            raise ValueError(f"it was fitted for the head {name!r}: make the guard with {example}")
        check_layer_names(model, list(map(str, contract.layers)))
        reader = cls.of_contract(model, declared, contract)
        _check_same_head(reader.affine, detector)
        return reader

    @classmethod
    def of_contract(cls, model: nn.Module, declared: Declared, contract: Contract) -> Reader:
        """Return a reader of a model that has been worked out elsewhere."""
        if declared.own_head is not None:
            return cls(model, declared, contract, declared.own_head.affine)
        return cls(model, declared, contract, _head_of(model, contract.head, declared.task))


def _with_layers(contract: Contract, layers: str | int | tuple[str, ...], trace: Trace, few: Arguments) -> Contract:
    """Return a contract with the layers that are declared, and with the input if nobody named layers."""
    by_name = isinstance(layers, tuple)
    head = contract.head
    if head.reading == "every":
        reason = "every token or pixel has an answer of its own, and layers have one row per sample"
        if by_name:
            raise LayersNotFoundError(f"layers={layers}: {reason}. Take layers='last'")
        warn_of_fallback(reason)
        return contract
    samples = sample_count(*few) or 0
    call = next(call for call in trace.calls if (call.name, call.number) == (head.name, head.call))
    chosen = choose_layers(trace, call, samples, COUNT if isinstance(layers, str) else layers)
    table = input_table(*few)
    has_input = not by_name and table is not None and len(table) == samples and _takes_rows(trace, table)
    if not chosen and not has_input:
        warn_of_fallback("the model has no layer before its head with one entry per sample that can be watched")
    return contract._replace(layers=chosen, has_input=has_input)


def _warn(head: Head, logits: Tensor | None, answer: Tensor | None) -> None:
    """Say what is taken for the logits where it is not what the model answers."""
    warning = warning_of(head, logits, answer)
    if warning is not None:
        warnings.warn(warning, HeadWarning, stacklevel=7)


def _head_of(model: nn.Module, head: Head, task: Task) -> Affine:
    """Return weight and bias of the last layer of a model, by its name."""
    module = dict(model.named_modules()).get(head.name)
    affine = None
    if module is not None and head.is_probed:
        affine = probed_affine(module)
    elif module is not None:
        affine = own_affine(module)
    if affine is None:
        raise ValueError(f"it was fitted for another last layer: the model has no linear layer {head.name!r}")
    return with_zero_class(affine) if head.one_logit or task == "multilabel" else affine


def _check_same_head(affine: Affine, detector: Detector) -> None:
    """Raise ``ValueError`` unless a detector was fitted for this last layer, in whatever precision."""
    weight, bias = (part.cpu().double() for part in affine)
    fitted = detector.weight, detector.bias
    for mine, theirs in zip((weight, bias), map(torch.from_numpy, fitted), strict=True):
        if mine.shape != theirs.shape or bool((mine - theirs).abs().max() > 0.02 * theirs.abs().max()):
            raise ValueError(
                f"it was fitted for another last layer: one of {detector.n_features} features and "
                f"{detector.n_classes} classes with digest {detector.head_digest[:12]}, where this model's has "
                f"{weight.shape[1]} features, {len(weight)} classes and digest {head_digest(weight, bias)[:12]}: load "
                "the weights that it was fitted with into the model (--weights on the command line)"
            )


def _takes_rows(trace: Trace, table: Tensor) -> bool:
    """Return whether a layer takes rows as wide as a table's: of a waveform (n, time) none does."""
    leaves = [call for call in trace.calls if not call.children]
    return any(call.entered is not None and call.entered.shape == table.shape for call in leaves)
