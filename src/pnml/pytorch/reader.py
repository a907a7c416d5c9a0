"""How a guard reads its model: worked out with the first batch, or restored, and then followed in every pass."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from pnml.core.last_layer import head_digest
from pnml.pytorch.batches import few_samples, named_arguments, positional_names, sample_count
from pnml.pytorch.contract import EMBED, Contract, Head
from pnml.pytorch.head import HeadWarning, find_head, own_affine, probed_affine, warning_of, with_zero_class
from pnml.pytorch.layers import (
    COUNT,
    MOST_TRACED,
    LayersNotFoundError,
    check_layer_names,
    choose_layers,
    input_table,
    warn_of_fallback,
)
from pnml.pytorch.masks import counts_by, counts_of, find_mask
from pnml.pytorch.models import copied
from pnml.pytorch.recording import Outputs, Recorder, input_rows, read_pass
from pnml.pytorch.steadiness import unsteady_layers
from pnml.pytorch.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.core.detector import Detector, Task
    from pnml.pytorch.batches import Arguments
    from pnml.pytorch.contract import Mask
    from pnml.pytorch.head import Affine, GivenHead
    from pnml.pytorch.layers import Wanted
    from pnml.pytorch.masks import DeclaredMask
    from pnml.pytorch.trace import Call

_LOG = logging.getLogger(__name__)


class Declared(NamedTuple):
    """What a user said of a model; see :class:`~pnml.Guard`.

    Attributes:
        head: the name of the last layer, None if it is to be found.
        layers: "auto", a number of layers, or names.
        mask: "auto", the name of an argument, a function, or None.
        reading: of a head that puts out several tokens or pixels.
        logits: takes the logits out of what the model returns.
        given: a head with ``embed=``, None for one of the model.
        task: "multiclass" or "multilabel".
    """

    head: str | None
    layers: Wanted
    mask: DeclaredMask
    reading: str | int | None
    logits: Callable[[Any], Tensor]
    given: GivenHead | None
    task: Task


class Reader:
    """Runs a model, which somebody keeps in eval mode, and returns what a detector needs of it.

    Attributes:
        contract: how the model is read.
        affine: weight and bias of its head.
        dtype: of the embeddings.
    """

    def __init__(
        self,
        model: nn.Module,
        declared: Declared,
        contract: Contract,
        affine: Affine,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.contract, self.affine = contract, affine
        self.dtype: torch.dtype = getattr(torch, contract.dtype)
        self._model, self._declared = model, declared
        self._names = positional_names(model)
        self._recorder: Recorder | None = None
        if declared.given is None:
            self._head = model.get_submodule(contract.head.name)
            self._recorder = Recorder(model, contract.layers, contract.head.name)
            if options is not None:
                self._recorder.compile(options)
        self._options = options

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outputs:
        """Return the logits, the embeddings and the features of a batch."""
        if self._recorder is None:
            assert self._declared.given is not None  # noqa: S101 - or else there is a recorder
            embeddings, logits, places = self._declared.given.run(args, kwargs)
            return Outputs(logits, embeddings, (), places, None, embeddings.dtype)
        table = input_rows(args, kwargs) if self.contract.has_input else None  # now: a model may write into it
        answer, seen = self._recorder.run(args, kwargs, self.counts(args, kwargs))
        return read_pass(self.contract, (self._declared.logits(answer), seen), self._head, table)

    def counts(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """Return which tokens count, (n, T), None where nothing says so."""
        return _counts(self.contract.mask, self._declared, self._names, args, kwargs)

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
        given = named_arguments(positional_names(model), args, kwargs)
        mask = None if declared.given else find_mask(model, given, declared.mask)
        few = few_samples(args, kwargs, MOST_TRACED)
        if declared.given is not None:
            contract = Contract(declared.given.check(*few, declared.logits))
            reader = cls(model, declared, contract, declared.given.affine)
            _warn(contract.head, None, None)
            return reader._checked(*few, reader.run(*copied(few)))
        try:
            trace = Trace(model, *few)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # noqa: BLE001 - whatever a model raises that takes no other size of batch
            few = args, kwargs
            trace = Trace(model, *few)
        answer = declared.logits(trace.answer)
        counts = _counts(mask, declared, positional_names(model), *few)
        head, affine, _ = find_head(
            trace, answer, counts, name=declared.head, reading=declared.reading, task=declared.task
        )
        call = next(call for call in trace.calls if (call.name, call.number) == (head.name, head.call))
        contract = Contract(head, mask=mask)
        if declared.layers:
            contract = cls._with_layers(contract, declared.layers, trace, call, few)
        reader = cls(model, declared, contract, affine)
        outputs = reader.run(*copied(few))
        _warn(head, outputs.logits, answer)
        return reader._checked(*few, outputs)

    @staticmethod
    def _with_layers(contract: Contract, wanted: Wanted, trace: Trace, head: Call, few: Arguments) -> Contract:
        """Return a contract with the layers that are wanted, and with the input if nobody named layers."""
        by_name = isinstance(wanted, tuple)
        count = COUNT if wanted == "auto" else wanted
        assert not isinstance(count, str)  # noqa: S101 - "auto" is the only word
        if contract.head.reading == "every":
            reason = "every token or pixel has an answer of its own, and layers have one row per sample"
            if by_name:
                raise LayersNotFoundError(f"layers={wanted}: {reason}. Take layers='last'")
            warn_of_fallback(reason)
            return contract
        samples = sample_count(*few) or 0
        layers = choose_layers(trace, head, samples, count)
        table = input_table(*few)
        has_input = not by_name and table is not None and len(table) == samples and _takes_rows(trace, table)
        if not layers and not has_input:
            warn_of_fallback("the model has no layer before its head with one entry per sample that can be watched")
        return contract._replace(layers=layers, has_input=has_input)

    def _checked(self, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Outputs) -> Reader:
        """Return the reader without layers that change with company or padding, and with the dtype of embeddings."""
        contract = self.contract._replace(dtype=str(outputs.dtype).removeprefix("torch."))
        wanted = self._declared.layers
        unsteady = unsteady_layers(self.run, outputs, (args, kwargs), self.counts(args, kwargs))
        if unsteady:
            names = [str(contract.layers[number]) for number in sorted(unsteady)]
            reason = (
                f"the outputs of layers {names} for a sample depend on the other samples of its batch or on padding"
            )
            if isinstance(wanted, tuple):
                raise LayersNotFoundError(
                    f"{reason}: name others, pnml.guard(model, layers=[...]), or take layers='last'"
                )
            _LOG.info("%s: they are left out", reason)
            steady = [layer for number, layer in enumerate(contract.layers) if number not in unsteady]
            contract = contract._replace(layers=tuple(steady))
            if not contract.layer_names:
                warn_of_fallback(reason)
        return Reader(self._model, self._declared, contract, self.affine)

    @classmethod
    def restored(cls, model: nn.Module, declared: Declared, detector: Detector) -> Reader:
        """Return how a model is read that a detector was fitted for; raise ``ValueError`` if it is not this one."""
        contract = Contract.from_json(detector.reading)
        name = contract.head.name
        if (name == EMBED) != (declared.given is not None) or declared.head not in {None, name}:
            made = "embed= and head=(weight, bias)" if name == EMBED else f"head={name!r}, or none"
            raise ValueError(f"it was fitted for the head {name!r}: make the guard with {made}")
        check_layer_names(model, list(map(str, contract.layers)))
        reader = cls.of_contract(model, declared, contract)
        _check_same_head(reader.affine, detector)
        return reader

    @classmethod
    def of_contract(cls, model: nn.Module, declared: Declared, contract: Contract) -> Reader:
        """Return a reader of a model that has been worked out elsewhere."""
        if declared.given is not None:
            return cls(model, declared, contract, declared.given.affine)
        return cls(model, declared, contract, _head_of(model, contract.head, declared.task))


def _warn(head: Head, logits: Tensor | None, answer: Tensor | None) -> None:
    """Say what is taken for the logits where it is not what the model answers."""
    warning = warning_of(head, logits, answer)
    if warning is not None:
        warnings.warn(warning, HeadWarning, stacklevel=6)


def _counts(
    mask: Mask | None, declared: Declared, names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Tensor | None:
    if mask is None:
        return None
    if mask.kind == "function":
        return counts_by(declared.mask, args, kwargs)
    return counts_of(mask, named_arguments(names, args, kwargs))


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
    fitted = torch.from_numpy(detector.weight), torch.from_numpy(detector.bias)
    for mine, theirs in zip((weight, bias), fitted, strict=True):
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
