"""Guard: any PyTorch classifier with a regret, a p-value and a decision beside every prediction."""

from __future__ import annotations

import logging
import warnings
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor, nn

from pnml.backend.progress import track
from pnml.core.calibration_scores import CalibrationScores
from pnml.core.conformal import check_share
from pnml.core.detector import Detector, Task
from pnml.core.multilabel import MultiLabelDetector
from pnml.core.placed_result import PlacedResult
from pnml.core.scaling import check_embedding_scale
from pnml.pytorch.batches import LABELS, advice_for, as_loader, inputs_of, naming_batch, sample_count
from pnml.pytorch.contract import INPUT, Layer
from pnml.pytorch.distributed import agreed_over_ranks, gather_over_ranks, is_first_rank, sum_over_ranks
from pnml.pytorch.head import OwnHead, linear_layers
from pnml.pytorch.layers import checked_layers
from pnml.pytorch.models import (
    EvalMode,
    device_of,
    is_compiled,
    logits_of,
    tensors_in,
    unwrapped,
)
from pnml.pytorch.reader import Declared, Reader
from pnml.pytorch.weights import WeightWatch, buffers_of, counters_since, fingerprint

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from pnml.core.calibration import By, Threshold
    from pnml.core.result import Result
    from pnml.core.scaling import EmbeddingScale
    from pnml.pytorch.batches import ChooseInputs
    from pnml.pytorch.head import Affine
    from pnml.pytorch.masks import DeclaredMask
    from pnml.pytorch.recording import Outputs
    from pnml.pytorch.weights import Fingerprint

_LOG = logging.getLogger(__name__)
_MOST_ROWS = 4096  # that wait to be learnt from: adding to sums of products takes as long for one row as for hundreds
TASKS: tuple[str, ...] = get_args(Task)


class PrecisionWarning(UserWarning):
    """A guarded model runs in a finer precision than when its detector was fitted."""


class Guard(nn.Module):
    """A trained classifier together with the detector of its last layer and of layers before it.

    The model is left as it is: its outputs, mode, hooks, gradients and dtype are the same after every call, which runs
    it in eval mode without gradients. (Outputs of ``nn.TransformerEncoder`` are so up to rounding: its parts are not
    fused while its layers are watched.) A model may be guarded from several threads at once, in whatever mode it is.

    How the model is read is worked out with the first batch of a fit, and stored with the detector.

    Args:
        model: a trained classifier with a linear last layer; its output is the logits as a tensor, or a dict or Hugging
            Face output that holds them.
        head: the name of that layer, whose own output is then taken for the logits. Left out, it is the linear layer
            whose output the model answers, alone or before softmax. Or, along with ``embed``, its weight (C, M) and its
            bias (C,) or None.
        layers: the earlier layers that are watched. "auto" chooses four of the model's repeated blocks, evenly spaced
            over its depth, a number as many, both along with the model's input where that is a table of numbers; names
            of modules are your own choice ("name#1" is the second call); "last" watches the embeddings alone.
            ``embedding_scale`` "paper" and "natural" are for embeddings alone.
        mask: which tokens count: the name of an argument (n, T) in which they are marked, or of their ``lengths`` (n,);
            or a function of the model's inputs that returns booleans (n, T); None if all do. "auto" knows arguments
            named ``attention_mask``, ``mask``, ``key_padding_mask``, ``src_key_padding_mask``, ``padding_mask`` and
            ``lengths``, and otherwise the ``padding_idx`` of an ``nn.Embedding``.
        reading: of a head that puts out several tokens or pixels a sample, what the model answers: the number of a
            token, "mean", "masked mean", or "every" where each has an answer. Left out, the answer tells.
        inputs: returns the model's inputs of what a loader yields, ``inputs(batch)``: a tensor, a tuple of positional
            arguments, a dict of keyword arguments, or a pair of both. By default the signature of the model's
            ``forward`` decides (:func:`pnml.pytorch.batches.inputs_of`).
        logits: takes the logits out of what the model returns, where that is neither a tensor nor holds ``logits``.
        embed: ``embed(model, *args, **kwargs)`` returns what enters the last layer, (n, M), for models in which it is
            not found, or (n, T, M) or (n, H, W, M) where every token or pixel has an answer; ``head`` has to be given
            then, and the embeddings alone are watched.
        embedding_scale: see :class:`~pnml.Detector`.
        task: "multilabel" if every output is a label of its own, with one regret each; see
            :class:`~pnml.core.multilabel.MultiLabelDetector`.

    Attributes:
        detector: the fitted :class:`~pnml.Detector`, None before :meth:`fit` or :meth:`load`.

    >>> network = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3))
    >>> images = torch.rand(64, 8, generator=torch.Generator().manual_seed(0))
    >>> guarded = Guard(network).fit([images], progress=False)
    >>> guarded(images).regret.shape
    torch.Size([64])
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        head: str | tuple[Tensor, Tensor | None] | None = None,
        layers: str | int | Sequence[str] = "auto",
        mask: DeclaredMask = "auto",
        reading: str | int | None = None,
        inputs: ChooseInputs | None = None,
        logits: Callable[[Any], Tensor] | None = None,
        embed: Callable[..., Tensor] | None = None,
        embedding_scale: EmbeddingScale = "auto",
        task: Task = "multiclass",
    ) -> None:
        super().__init__()
        _check_model(model)
        check_embedding_scale(embedding_scale)
        if task not in TASKS:
            raise ValueError(f"task must be one of {TASKS}, got {task!r}")
        self.model = model
        plain = unwrapped(model)
        _check_head(plain, head)
        declared_layers = checked_layers(plain, layers)
        own_head = None
        if embed is not None or isinstance(head, tuple):
            own_head = OwnHead(plain, head, embed, task)
        if isinstance(declared_layers, tuple) and declared_layers:
            names = list(declared_layers)
            if embedding_scale != "auto":
                raise ValueError(f'layers={names} need embedding_scale="auto", got {embedding_scale!r}')
            if own_head is not None:
                raise ValueError(f"layers={names} cannot be watched along with embed=: leave one of them out")
        if own_head is not None or embedding_scale != "auto":
            declared_layers = ()
        name = head if isinstance(head, str) and own_head is None else None
        self._declared = Declared(name, declared_layers, mask, reading, logits or logits_of, own_head, task)
        self.inputs = inputs
        self.embedding_scale: EmbeddingScale = embedding_scale
        self.task: Task = task
        self.detector: Detector | None = None
        self._reader: Reader | None = None
        self._watch: WeightWatch | None = None
        self._mode = EvalMode(model)
        self._modules_read: list[nn.Module] = []
        self._buffers_before: dict[str, tuple[Tensor, int]] = {}
        self._input_ndim: int | None = None
        self._options: dict[str, Any] | None = None
        self._has_warned = False

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "model" and "model" in self.__dict__.get("_modules", {}):
            raise AttributeError(
                "a guard is of one model: make another one, pnml.guard(other).fit(train_loader), or load weights into "
                "this model and fit again"
            )
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        head = self.head_name or "auto"
        if self._declared.own_head is not None:
            head = "given by embed"
        if self._reader is not None and self._reader.contract.head.notes:
            head += f" ({', '.join(self._reader.contract.head.notes)})"
        layers: Any = list(self.layers)
        if not layers:
            layers = self._declared.layers if self._reader is None and self._declared.layers else "last"
        task = "" if self.task == "multiclass" else f"{self.task}, "
        state = "not fitted" if self.detector is None else self.detector.described_state
        return f"Guard({type(unwrapped(self.model)).__name__}, {task}head {head}, layers {layers}, {state})"

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of what is watched besides the embeddings; before the first batch only those that you named."""
        if self._reader is not None:
            return self._reader.contract.layer_names
        return self._declared.layers if isinstance(self._declared.layers, tuple) else ()

    @property
    def watched(self) -> tuple[Layer, ...]:
        """What is watched besides the embeddings, known after the first batch; the input is a layer, too."""
        if self._reader is None:
            return ()
        contract = self._reader.contract
        return (*contract.layers, *([Layer(INPUT)] if contract.has_input else []))

    @property
    def head_name(self) -> str | None:
        """The name of the last layer; None while it is not known, and where ``embed`` gives what enters it."""
        if self._reader is None or self._declared.own_head is not None:
            return self._declared.head
        return self._reader.contract.head.name

    @property
    def head(self) -> Affine:
        """The model's last layer: from embeddings to logits, by its weight and its bias."""
        if self._reader is None:
            raise ValueError("the head is not known yet: call fit(train_loader) first")
        return self._reader.affine

    @property
    def is_prepared(self) -> bool:
        """Whether it is known how the model is read: after the first batch of a fit, or after :meth:`load`."""
        return self._reader is not None

    def fit(self, loader: Iterable[Any], *, progress: bool = True) -> Guard:
        """Learn the training set's embeddings and features in one streaming pass, in O(ΣM²) memory.

        Args:
            loader: yields tensors, tuples of the model's inputs and a label, or dicts that go to the model as keyword
                arguments, labels left out; or a Dataset. Under ``torch.distributed`` each rank passes its own share
                and all end with the same detector.
            progress: show a progress bar on stderr.
        """
        before = self._reader, self._input_ndim, self._watch
        self._reader = None
        try:
            detector = self._fitted_by(self._learn(loader, progress=progress))
        except BaseException:
            self._reader, self._input_ndim, self._watch = before
            raise
        self.detector = detector
        self._has_warned = False
        return self

    def calibrate(
        self,
        loader: Iterable[Any],
        *,
        false_alarm_rate: float = 0.05,
        leave_one_out: bool = False,
        by: By | None = None,
        progress: bool = True,
    ) -> Threshold:
        """Set the threshold from in-distribution data.

        Args:
            loader: held-out in-distribution samples; see :meth:`fit` for what it may yield.
            false_alarm_rate: the share of fresh in-distribution samples that may be flagged.
            leave_one_out: say that the loader yields the *training* set; see :meth:`pnml.Detector.calibrate`.
            by: "prediction" keeps the rate for every predicted class; see :meth:`pnml.Detector.calibrate`.
            progress: show a progress bar on stderr.
        """
        check_share("false_alarm_rate", false_alarm_rate)  # before the pass, not after it
        detector = self.fitted()
        self.warn_if_changed()
        parts: list[CalibrationScores] = []
        with closing(self._batches(loader, "calibrate", progress=progress)) as batches:
            for number, outputs in batches:
                with naming_batch(number):
                    scores = detector.calibration_scores(
                        outputs.embeddings,
                        features=outputs.features,
                        logits=outputs.logits,
                        leave_one_out=leave_one_out,
                    )
                parts.append(scores)
        every = gather_over_ranks(parts)
        if not every:
            raise ValueError("the loader yielded no samples: nothing to calibrate on")
        detector.threshold = CalibrationScores.join(every).threshold(false_alarm_rate=false_alarm_rate, by=by)
        return detector.threshold

    def forward(self, *args: Any, **kwargs: Any) -> Result:
        """Run the model on what it takes, and return its logits with regrets, p-values and decisions."""
        if torch.compiler.is_dynamo_compiling():  # torch.compile(guard) would cut the guard into many small pieces
            whole: Callable[..., Result] = torch.compiler.disable(self._whole)  # type: ignore[no-untyped-call]
            return whole(args, kwargs)
        detector = self.fitted()
        if not LABELS.isdisjoint(kwargs):
            _, kwargs = inputs_of(kwargs, self.model)
        if sample_count(args, kwargs) == 0 and not self._answers_every_place:
            dtype = next((p.dtype for p in self.model.parameters() if p.is_floating_point()), torch.float32)
            widths = detector.n_features, *detector.feature_widths
            empty = [torch.empty(0, width, dtype=dtype, device=device_of(self.model)) for width in widths]
            return detector(empty[0], features=empty[1:])
        self._enter()
        try:
            with torch.no_grad():
                if self._reader is None:  # the detector was set by hand
                    self.prepare(args, kwargs)
                outputs = self._run(args, kwargs)
                result = detector.of_rows(outputs.rows, outputs.logits)
        except torch.OutOfMemoryError:
            raise
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
            advice = advice_for(args, kwargs, self._input_ndim)
            if advice:
                raise ValueError(f"the guard was called with {advice}") from error
            raise
        finally:
            self._mode.leave()
        if self._watch is not None and self._watch.has_moved():  # looked at now, while a GPU is at work
            self._watch.warn_if_changed(stacklevel=4)
        return result if outputs.places is None else PlacedResult(result, outputs.places)

    def _whole(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Result:
        """Do what :meth:`forward` does, where ``torch.compile`` of the guard looks away."""
        if self._options is None:
            _LOG.info("torch.compile(guard) compiles nothing: guard.compile() compiles what the guard runs")
        return self.forward(*args, **kwargs)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Outputs:
        """Run the model on its arguments in eval mode; return its logits, embeddings and features."""
        with self.evaluating():
            if self._reader is None:
                self.prepare(args, kwargs or {})
            return self._run(args, kwargs or {})

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outputs:
        reader = self._reader
        assert reader is not None  # noqa: S101 - prepared
        outputs = reader.run(args, kwargs)
        if outputs.dtype is not reader.dtype:
            self._check_precision(outputs.dtype, reader.dtype)
        return outputs

    def _check_precision(self, dtype: torch.dtype, fitted: torch.dtype) -> None:
        """Refuse embeddings in a coarser precision than those of the fit; warn, once, of a finer one."""
        name = str(dtype).removeprefix("torch.")
        seen = f"the embeddings are {name}, and the guard was fitted on {str(fitted).removeprefix('torch.')}: "
        if torch.finfo(dtype).eps > torch.finfo(fitted).eps:
            raise ValueError(
                f"{seen}what rounding does to them would pass for unknown. Fit again as the model is served, "
                f"pnml.guard(model.to(torch.{name})).fit(train_loader), or fit and calibrate under the same "
                "torch.autocast"
            )
        if not self._has_warned:
            self._has_warned = True
            message = f"{seen}regrets differ by rounding. Fit again as the model is served, guard.fit(train_loader)"
            warnings.warn(message, PrecisionWarning, stacklevel=4)

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Work out how the model is read with the first samples of a batch: its head, its layers, its mask."""
        plain = unwrapped(self.model)
        if self._options is None and any(map(is_compiled, (self.model, plain))):
            _LOG.info("the compiled model runs uncompiled in the guard: guard.compile() compiles it along with it")
        with self.evaluating():
            self._buffers_before = buffers_of(plain)
            self._reader = Reader.of_batch(plain, self._declared, args, kwargs)
        first = next(tensors_in((args, kwargs)), None)
        self._input_ndim = None if first is None else first.ndim
        if self._options is not None:
            self._reader = self._reader.compiled(self._options)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Run the model from now on as ``torch.compile`` compiles it, along with what the guard reads of it.

        The model itself is left as it is. The first batch takes a while, and so does the first of another size. With
        CUDA graphs (``mode="reduce-overhead"``) PyTorch keeps what a pass gave until the next: read a result before.

        Args:
            args: none; the signature is that of ``nn.Module.compile``.
            kwargs: the options of ``torch.compile``, for instance ``dynamic=True``.
        """
        if args:
            raise TypeError(f"the options of torch.compile go by their names, as in mode='max-autotune', got {args}")
        if self._declared.own_head is not None:
            raise ValueError("embed= runs the model by itself: compile what it calls, or leave head= and embed= out")
        torch.compile(**kwargs)  # which refuses what is none of its options
        self._options = kwargs
        if self._reader is not None:
            self._reader = self._reader.compiled(kwargs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the detector to a safetensors file; the model is saved by you, as ever."""
        self.fitted().save(path)

    def load(self, path: str | os.PathLike[str], *, check_model: bool = True) -> Guard:
        """Read a detector written by :meth:`save` for this model; one fitted with other weights is refused.

        Its layers and its ``embedding_scale`` replace those of the guard.

        Args:
            path: the file.
            check_model: compare all weights of the model; the last layer has to be the same in any case.
        """
        detector = Detector.load(path)
        declared = self._declared._replace(task=detector.task)
        plain = unwrapped(self.model)
        counters = tuple((detector.reading or {}).get("counters", ()))
        try:
            with self.evaluating():  # or some parametrisations would change their buffers
                reader = Reader.restored(plain, declared, detector)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        weights = fingerprint(plain, counters)
        stored = detector.model_fingerprint or weights
        if check_model and weights["exact"] != stored["exact"]:
            raise ValueError(
                f"{path} was fitted with other weights than this model has, or with the same in another precision: fit "
                "again as you serve it, pnml.guard(model).fit(train_loader), or load the checkpoint it was fitted with."
                " To use it all the same, load(path, check_model=False), or on the command line --no-check-model"
            )
        if self._options is not None:
            reader = reader.compiled(self._options)
        self._watch = WeightWatch(plain, weights, counters)
        self.embedding_scale = detector.embedding_scale
        self.task = detector.task
        self.detector = detector
        self._declared = declared
        self._reader = reader
        self._input_ndim = None
        self._has_warned = False
        return self

    def empty_detector(self) -> Detector:
        """Return a detector of the model's last layer that is not fitted."""
        kind = MultiLabelDetector if self.task == "multilabel" else Detector
        weight, bias = self.head
        assert self._reader is not None  # noqa: S101 - it has a head
        contract = self._reader.contract
        detector = kind(weight, bias, embedding_scale=self.embedding_scale, input_layer=contract.has_input)
        detector.layer_names = contract.layer_names
        detector.head_notes = contract.head.notes
        detector.reading = contract.to_json()
        return detector

    def fitted(self) -> Detector:
        """Return the detector; raise ``ValueError`` before :meth:`fit` or :meth:`load`."""
        if self.detector is None:
            raise ValueError("the guard is not fitted: call fit(train_loader) or load(path) first")
        return self.detector

    def model_fingerprint(self) -> Fingerprint:
        """Return digests of the weights of the model, by which a detector file knows it."""
        return fingerprint(self.model, () if self._reader is None else self._reader.contract.counters)

    def warn_if_changed(self) -> None:
        """Warn if the model's weights are not those that the guard was fitted with, once for every change."""
        if self._watch is not None:
            self._watch.warn_if_changed(stacklevel=4)

    def uncompiled_reader(self) -> Reader:
        """Return what runs the model without compiled code, which cannot become part of another graph."""
        self.fitted()
        if self._reader is None:
            raise ValueError("the detector was set by hand: call the guard once with a batch, to see its head")
        return self._reader.compiled(None)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Keep the model in eval mode and record no gradients while the context is open."""
        self._enter()
        try:
            with torch.no_grad():
                yield
        finally:
            self._mode.leave()

    def _fitted_by(self, mine: Detector | None) -> Detector:
        """Return the detector of what all ranks have learnt, and keep the weights that it was fitted with."""
        plain = unwrapped(self.model)
        contract = None
        if self._reader is not None:
            contract = self._reader.contract._replace(counters=counters_since(self._buffers_before, plain))
        contract = agreed_over_ranks(contract)
        if contract is None:
            raise ValueError("the loader yielded no samples: nothing to fit")
        if self._reader is None:  # this rank saw no batch
            self._reader = Reader.of_contract(plain, self._declared, contract)
        self._reader = self._reader.with_contract(contract)
        empty = self.empty_detector()
        statistic = sum_over_ranks((mine or empty).correlation)
        if statistic.count + statistic.left_out == 0:
            raise ValueError("the loader yielded no samples: nothing to fit")
        detector = empty.merge(statistic)
        _ = detector.model  # decomposed now, so that warnings come from here and the first call is fast
        self._watch = WeightWatch(plain, None, contract.counters)
        detector.model_fingerprint = self._watch.stored
        return detector

    @property
    def _answers_every_place(self) -> bool:
        return self._reader is not None and self._reader.contract.head.reading == "every"

    def _enter(self) -> None:
        """Put the model into eval mode; where modules were replaced, the new ones are watched from now on."""
        modules = self._mode.enter()
        if modules is not self._modules_read:
            self._modules_read = modules
            if self._reader is not None:
                self._reader = self._reader.with_contract(self._reader.contract)

    def _batches(self, loader: Iterable[Any], what: str, *, progress: bool) -> Generator[tuple[int, Outputs]]:
        """Yield the number of every batch of a loader, and what the model gives for it, without padding."""
        loader = as_loader(loader)
        with self.evaluating(), closing(track(loader, what, shown=progress and is_first_rank())) as batches:
            for number, batch in enumerate(batches):
                args, kwargs = inputs_of(batch, self.model, self.inputs)
                if sample_count(args, kwargs) == 0:
                    continue
                if self._reader is None:
                    self.prepare(args, kwargs)
                with naming_batch(number):
                    outputs = self._run(args, kwargs).counting()
                yield number, outputs

    def _learn(self, loader: Iterable[Any], *, progress: bool) -> Detector | None:
        """Return a detector of the batches of a loader, None if it yields none."""
        detector = None
        waiting: list[tuple[int, list[Tensor]]] = []
        count = 0
        with closing(self._batches(loader, "fit", progress=progress)) as batches:
            for number, outputs in batches:
                if detector is None:
                    detector = self.empty_detector()
                waiting.append((number, [x.clone() for x in (outputs.embeddings, *outputs.features)]))
                count += len(outputs.embeddings)
                if count >= _MOST_ROWS:
                    _add(detector, waiting)
                    waiting = []
                    count = 0
            if detector is not None and waiting:
                _add(detector, waiting)
        return detector


def _add(detector: Detector, waiting: list[tuple[int, list[Tensor]]]) -> None:
    """Add the embeddings and features of numbered batches to a statistic; an error names their batch."""
    try:
        embeddings, *features = map(torch.cat, zip(*(rows for _, rows in waiting), strict=True))
        detector.partial_fit(embeddings, features=features)
    except ValueError:
        for number, (embeddings, *features) in waiting:
            with naming_batch(number):
                detector.partial_fit(embeddings, features=features)
        raise


def _check_model(model: Any) -> None:
    """Raise ``TypeError`` for what is no PyTorch model, with what to do instead."""
    if isinstance(model, nn.Module):
        return
    advice = "build the network and load its weights first"
    if hasattr(model, "keys"):
        advice = "these look like weights, load them into the network first, model.load_state_dict(weights)"
    elif hasattr(model, "predict_proba"):
        advice = "for scikit-learn take pnml.PNMLClassifier(model)"
    raise TypeError(f"expected a model, a torch.nn.Module, got {type(model).__name__}: {advice}")


def _check_head(model: nn.Module, head: Any) -> None:
    """Raise unless a head is the name of a module of the model, a weight and a bias, or None."""
    if head is None or isinstance(head, tuple):
        return
    modules = dict(model.named_modules())
    linear = list(linear_layers(model))
    if not isinstance(head, str):
        names = [f"head={name!r}" for name, module in modules.items() if module is head and name]
        example = names[0] if names else f"of its linear layers {linear}"
        raise TypeError(f"head must be the name of a layer, got {type(head).__name__}: give its name, {example}")
    if head not in modules:
        raise ValueError(f"head {head!r} is no module of the model; its linear layers are {linear}")


guard = Guard
"""A :class:`Guard`, in the words of a sentence: ``pnml.guard(model).fit(train_loader)``."""
