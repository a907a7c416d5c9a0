"""Guard: any PyTorch classifier with a regret, a p-value and a decision beside every prediction."""

from __future__ import annotations

import warnings
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from pnml.backend.progress import track
from pnml.core.calibration_scores import CalibrationScores
from pnml.core.detector import Detector
from pnml.core.multilabel import MultiLabelDetector
from pnml.core.placed_result import PlacedResult
from pnml.pytorch.batches import as_loader, inputs_of
from pnml.pytorch.call_inputs import empty_rows, explained_errors, input_ndim, sample_count
from pnml.pytorch.changes import FittedWeights, refuse_changed, refuse_rounded, relation
from pnml.pytorch.distributed import gather_over_ranks, is_first_rank
from pnml.pytorch.finding import TASKS, find_head
from pnml.pytorch.fingerprint import fingerprint
from pnml.pytorch.fitting import TrainingPass
from pnml.pytorch.given import GivenHead
from pnml.pytorch.head import HeadWarning, eager, linear_layers, logits_of, record_calls, unwrapped
from pnml.pytorch.last_layer import LastLayer, check_same_head, matching_layers
from pnml.pytorch.layers import LayersNotFoundError, check_layer_names, choose_layers, record_layers, warn_of_fallback
from pnml.pytorch.pooling import token_mask

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pnml.core.calibration import By, Threshold
    from pnml.core.detector import Task
    from pnml.core.result import Result
    from pnml.core.scaling import EmbeddingScale
    from pnml.pytorch.affine import Affine
    from pnml.pytorch.batches import ChooseInputs
    from pnml.pytorch.fingerprint import Fingerprint
    from pnml.pytorch.layers import Layer


class Outputs(NamedTuple):
    """What a forward pass of a guarded model gave.

    Attributes:
        logits: shape (n, C).
        embeddings: what entered the head, shape (n, M).
        features: of earlier layers, shape (n, features of that layer) each.
        places: the shape of the answers where every token or pixel has one, (samples, T) or (samples, H, W), whose
            product is n; None where every sample has one.
        counts: which of these n count, (n,), where a mask of tokens says so; None where all do.
    """

    logits: Tensor
    embeddings: Tensor
    features: list[Tensor]
    places: tuple[int, ...] | None = None
    counts: Tensor | None = None

    def counting(self) -> Outputs:
        """Return what is to be learnt from: padding is left out."""
        if self.counts is None:
            return self
        return Outputs(self.logits[self.counts], self.embeddings[self.counts], [])


def guard(
    model: nn.Module,
    *,
    head: str | tuple[Tensor, Tensor | None] | None = None,
    layers: str | Sequence[str] = "auto",
    embedding_scale: EmbeddingScale = "auto",
    inputs: ChooseInputs | None = None,
    task: Task = "multiclass",
    embed: Callable[..., Tensor] | None = None,
    logits: Callable[[Any], Tensor] = logits_of,
) -> Guard:
    """Return a guard around a trained classifier; see :class:`Guard` for the arguments.

    >>> network = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3))
    >>> images = torch.rand(64, 8, generator=torch.Generator().manual_seed(0))
    >>> guarded = guard(network).fit([images], progress=False)
    >>> guarded(images).regret.shape
    torch.Size([64])
    """
    return Guard(
        model,
        head=head,
        layers=layers,
        embedding_scale=embedding_scale,
        inputs=inputs,
        task=task,
        embed=embed,
        logits=logits,
    )


class Guard(nn.Module):
    """A trained classifier together with the detector of its last layer and of layers before it.

    The model is left as it is: its outputs, mode, hooks, gradients and dtype are the same after every call, which runs
    it in eval mode without gradients. (Outputs of ``nn.TransformerEncoder`` are so up to rounding: its parts are not
    fused while its layers are watched.) What the guard computes from the embeddings is computed in float64 where the
    device has it. A model that is in eval mode may be guarded from several threads at once.

    Args:
        model: a trained classifier with a linear last layer; its output is the logits as a tensor, or a dict or Hugging
            Face output that holds them.
        head: the name of that layer, found by running the first batch when left out; or, along with ``embed``, its
            weight (C, M) and its bias (C,) or None.
        layers: the earlier layers whose outputs are watched. "auto" chooses about eight, evenly spaced over the depth
            of the model, by running a few samples of the first batch, or none, with a warning, where there are none to
            watch; "last" watches the embeddings alone; names of modules are your own choice. ``embedding_scale``
            "paper" and "natural" are for embeddings alone.
        embedding_scale: see :class:`~pnml.Detector`.
        inputs: returns the model's inputs of what a loader yields, ``inputs(batch)``: a tensor, a tuple of positional
            arguments, a dict of keyword arguments, or a pair of both. By default the signature of the model's
            ``forward`` decides (:func:`pnml.pytorch.batches.inputs_of`).
        task: "multilabel" if every output is a label of its own, with one regret each; see
            :class:`~pnml.core.multilabel.MultiLabelDetector`.
        embed: ``embed(model, *args, **kwargs)`` returns what enters the last layer, (n, M), for models in which it is
            not found; ``head`` has to be given then, and the embeddings alone are watched.
        logits: takes the logits out of what the model returns, where that is neither a tensor nor holds ``logits``.

    Attributes:
        detector: the fitted :class:`~pnml.Detector`, None before :meth:`fit` or :meth:`load`.
        found_head: the last layer, None while it is not known.
        found_layers: the layers and the axes of their outputs, None while they are not known.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        head: str | tuple[Tensor, Tensor | None] | None = None,
        layers: str | Sequence[str] = "auto",
        embedding_scale: EmbeddingScale = "auto",
        inputs: ChooseInputs | None = None,
        task: Task = "multiclass",
        embed: Callable[..., Tensor] | None = None,
        logits: Callable[[Any], Tensor] = logits_of,
    ) -> None:
        super().__init__()
        self.model = model
        self.inputs = inputs
        self.embedding_scale: EmbeddingScale = embedding_scale
        self.task: Task = task
        self.detector: Detector | None = None
        self.head_name = head if isinstance(head, str) else None
        self.found_head: LastLayer | None = None
        self.found_layers: tuple[Layer, ...] | None = None
        self._weights = FittedWeights()
        self._input_ndim: int | None = None
        self._wanted: str | tuple[str, ...] = layers if isinstance(layers, str) else tuple(layers) or "last"
        self._logits, self._told, self._is_loaded = logits, "", False
        if task not in TASKS:
            raise ValueError(f"task must be one of {TASKS}, got {task!r}")
        is_given = embed is not None or isinstance(head, tuple)
        self._given = GivenHead(self._plain, head, embed, task) if is_given else None
        if self.head_name is not None and self.head_name not in dict(self._plain.named_modules()):
            raise ValueError(
                f"head {head!r} is no module of the model; its linear layers are {list(linear_layers(self._plain))}"
            )
        if isinstance(self._wanted, tuple):
            check_layer_names(self._plain, self._wanted)
            if embedding_scale != "auto":
                raise ValueError(f'layers={list(layers)} need embedding_scale="auto", got {embedding_scale!r}')
            if self._given is not None:
                raise ValueError(f"layers={list(layers)} cannot be watched along with embed=: leave one of them out")
        elif self._wanted not in {"auto", "last"}:
            raise ValueError(f'layers must be "auto", "last" or a list of names of modules, got {layers!r}')

    @property
    def _plain(self) -> nn.Module:
        """The model itself, out of its wrappers."""
        return unwrapped(self.model)

    @property
    def head(self) -> Affine:
        """The model's last layer: from embeddings to logits, by its weight and its bias."""
        if self._given is not None:
            return self._given.affine
        if self.found_head is not None:
            return self.found_head.affine
        raise ValueError("the head is not known yet: call fit(train_loader) first")

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the earlier layers that are watched; before the first batch only those that you named."""
        if self.found_layers is None:
            return self._wanted if isinstance(self._wanted, tuple) else ()
        return tuple(str(layer) for layer in self.found_layers)

    @property
    def may_fall_back(self) -> bool:
        """Whether layers that cannot be watched are left out with a warning: nobody named them."""
        return isinstance(self._wanted, str)

    def __repr__(self) -> str:
        known = self.found_layers is not None or not self.may_fall_back
        layers = f"layers {list(self.layers) or 'last'}" if known else f"layers {self._wanted}"
        state = "not fitted"
        if self.detector is not None:
            state = f"fitted on {self.detector.correlation.count:,} samples, "
            state += "not calibrated" if self.detector.threshold is None else f"calibrated: {self.detector.threshold}"
        head = "given by embed" if self._given is not None else f"head {self.head_name or 'auto'}"
        if self.found_head is not None and self.found_head.notes:
            head += f" ({', '.join(self.found_head.notes)})"
        task = "" if self.task == "multiclass" else f"{self.task}, "
        return f"Guard({type(self._plain).__name__}, {task}{head}, {layers}, {state})"

    def fit(self, loader: Iterable[Any], *, progress: bool = True) -> Guard:
        """Learn the training set's embeddings and features in one streaming pass, in O(ΣM²) memory.

        Args:
            loader: yields tensors, tuples of the model's inputs and a label, or dicts that go to the model as keyword
                arguments, labels left out; or a Dataset. Under ``torch.distributed`` each rank passes its own share
                and all end with the same detector.
            progress: show a progress bar on stderr.
        """
        before, self.found_layers, self._is_loaded = self.found_layers, None, False
        try:
            training = TrainingPass(self)
            self._each_batch(loader, training.add, "fit", progress=progress)
            self.detector = training.finish()
            self.detector.model_fingerprint = self._weights.keep(self.model)
        except BaseException:
            self.found_layers = before
            raise
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
        detector = self.fitted()
        self.warn_if_changed()
        parts: list[CalibrationScores] = []

        def score(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            outputs = self.run(args, kwargs).counting()
            found = detector.calibration_scores(
                outputs.embeddings, features=outputs.features, logits=outputs.logits, leave_one_out=leave_one_out
            )
            parts.append(found)

        self._each_batch(loader, score, "calibrate", progress=progress)
        every = gather_over_ranks(parts)
        if not every:
            raise ValueError("the loader yielded no samples: nothing to calibrate on")
        detector.threshold = CalibrationScores.join(every).threshold(false_alarm_rate=false_alarm_rate, by=by)
        return detector.threshold

    def forward(self, *args: Any, **kwargs: Any) -> Result:
        """Run the model on what it takes, and return its logits with regrets, p-values and decisions."""
        detector = self.fitted()
        self.warn_if_changed(stacklevel=5)
        if sample_count(args, kwargs) == 0:
            embeddings, *features = empty_rows(self.model, (detector.n_features, *detector.feature_widths))
            return detector(embeddings, features=features)
        with self.eval_no_grad(), explained_errors(args, kwargs, self._input_ndim):
            outputs = self.run(args, kwargs)
            result = detector(outputs.embeddings, features=outputs.features, logits=outputs.logits)
            return result if outputs.places is None else PlacedResult(result, outputs.places)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the detector to a safetensors file; the model is saved by you, as ever."""
        self.fitted().save(path)

    def load(self, path: str | os.PathLike[str], *, check_model: bool = True) -> Guard:
        """Read a detector written by :meth:`save` for this model; one fitted with other weights is refused.

        Its layers and its ``embedding_scale`` replace those of the guard.

        Args:
            path: the file.
            check_model: compare all weights of the model; the last layer has to be the same in any case. Files written
                before 0.2 know no more than that.
        """
        detector = Detector.load(path)
        known = relation(detector.model_fingerprint, self.model)
        if check_model and known == "rounded":
            raise refuse_rounded(path)
        self._check_head_of(detector, path)
        if check_model and known == "other":
            raise refuse_changed(path)
        check_layer_names(self._plain, detector.layer_names)
        self._weights.keep(self.model, detector.model_fingerprint if known == "same" else None)
        self.detector, self._is_loaded, self.found_head = detector, True, None
        self.embedding_scale, self.task = detector.embedding_scale, detector.task
        self._wanted, self.found_layers = detector.layer_names or "last", None
        return self

    def _check_head_of(self, detector: Detector, path: str | os.PathLike[str]) -> None:
        """Learn the name of the head that a detector was fitted for, where its weights alone tell."""
        if self._given is not None:
            check_same_head(detector, self._given.affine)
            return
        names = [self.head_name] if self.head_name else [name for name, _ in self._plain.named_modules()]
        matches = matching_layers(self._plain, names, detector.head_digest)
        if not matches and not detector.head_notes:
            raise ValueError(
                f"{path} was fitted for another last layer: one of {detector.n_features} features and "
                f"{detector.n_classes} classes with digest {detector.head_digest[:12]}, which none of this model's "
                f"linear layers {[self.head_name] if self.head_name else list(linear_layers(self._plain))} is"
            )
        if len(matches) > 1:
            raise ValueError(
                f"{path} fits more than one layer of this model: say which, pnml.guard(model, head=...), of {matches}"
            )
        self.head_name = matches[0] if matches else self.head_name

    def empty_detector(self) -> Detector:
        """Return a detector of the model's last layer that is not fitted."""
        kind = MultiLabelDetector if self.task == "multilabel" else Detector
        detector = kind(*self.head, embedding_scale=self.embedding_scale)
        detector.layer_names = self.layers
        detector.head_notes = () if self.found_head is None else self.found_head.notes
        return detector

    def fitted(self) -> Detector:
        """Return the detector; raise ``ValueError`` before :meth:`fit` or :meth:`load`."""
        if self.detector is None:
            raise ValueError("the guard is not fitted: call fit(train_loader) or load(path) first")
        return self.detector

    def model_fingerprint(self) -> Fingerprint:
        """Return digests of the weights of the model, by which a detector file knows it."""
        return fingerprint(self.model)

    def warn_if_changed(self, *, stacklevel: int = 3) -> None:
        """Warn if the model's weights are not those that the guard was fitted with, once for every change."""
        if not torch.compiler.is_compiling():
            self._weights.warn_if_changed(self.model, stacklevel=stacklevel)

    def _each_batch(
        self,
        loader: Iterable[Any],
        consume: Callable[[tuple[Any, ...], dict[str, Any]], object],
        what: str,
        *,
        progress: bool,
    ) -> None:
        """Call ``consume`` with the arguments of the model for every batch of a loader; an error names the batch."""
        loader = as_loader(loader)
        found = False
        with self.eval_no_grad(), closing(track(loader, what, shown=progress and is_first_rank())) as batches:
            for number, batch in enumerate(batches):
                args, kwargs = inputs_of(batch, self.model, self.inputs)
                if sample_count(args, kwargs) == 0:
                    continue
                if not found:
                    self.find(args, kwargs)
                    found, self._input_ndim = True, input_ndim(args, kwargs)
                try:
                    consume(args, kwargs)
                except ValueError as error:
                    raise ValueError(f"batch {number} of the loader: {error}") from error

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Find the head, or check it if it is named, and the layers unless they are known, by running the model."""
        self._find_head(args, kwargs)
        self._find_layers(args, kwargs)

    def _find_head(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LastLayer:
        if self._given is not None:
            found = self._given.check(args, kwargs, self._logits)
        else:
            found = find_head(self._plain, args, kwargs, named=self.head_name, task=self.task, logits=self._logits)
        if self._is_loaded:
            check_same_head(self.fitted(), found.affine)
        self.found_head, self.head_name = found, found.name
        if found.warning is not None and found.warning != self._told:
            warnings.warn(found.warning, HeadWarning, stacklevel=5)
            self._told = found.warning
        return found

    def _find_layers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Layer, ...]:
        if self.found_layers is None:
            assert self.found_head is not None  # noqa: S101 - found before
            wanted, obstacle = self._wanted, self.found_head.obstacle_to_layers
            if obstacle is not None and not self.may_fall_back:
                raise LayersNotFoundError(f"layers={list(wanted)} cannot be watched: {obstacle}. Take layers='last'")
            if obstacle is not None and wanted == "auto":
                warn_of_fallback(obstacle)
            if obstacle is not None or self._given is not None or self.embedding_scale != "auto":
                wanted = "last"
            self.found_layers = choose_layers(self._plain, args, kwargs, head=self.found_head.name, wanted=wanted)
        return self.found_layers

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outputs:
        """Run the model; return its logits, the embeddings that entered its head, and the features of its layers."""
        head = self.found_head or self._find_head(args, kwargs)
        if self._given is not None:
            return Outputs(*self._given.run(args, kwargs), [])
        layers, module = self._find_layers(args, kwargs), self._plain.get_submodule(head.name)
        with record_calls(module) as calls, record_layers(self._plain, layers, kwargs, args) as pooled:
            answer = self._logits(eager(self._plain)(*args, **kwargs))
        mask = token_mask(self._plain, args, kwargs)
        embeddings, logits, places = head.read(module, calls, answer, mask)
        counts = None if places is None or mask is None or mask.shape != places else mask.flatten().bool()
        features = [x for x in pooled if x is not None and x.shape[0] == embeddings.shape[0]]
        if len(features) < len(layers):
            bad = [str(n) for n, x in zip(layers, pooled, strict=True) if x is None or len(x) != len(embeddings)]
            raise LayersNotFoundError(
                f"layers {bad} did not put out one entry per sample in a forward pass, as they did in the first one: "
                "name others, pnml.guard(model, layers=[...]), or take layers='last'"
            )
        return Outputs(logits, embeddings, features, places, counts)

    @contextmanager
    def eval_no_grad(self) -> Iterator[None]:
        """Put every module into eval mode and record no gradients; restore every module's mode on leaving."""
        training = _training_modules(self.model)
        try:
            for module in training:
                module.training = False
            with torch.no_grad():
                yield
        finally:
            for module in training:
                module.training = True


def _training_modules(model: nn.Module) -> list[nn.Module]:
    """Return the modules in training mode; a plain loop, because ``model.modules()`` takes ten times as long."""
    found, modules = [], [model]
    for module in modules:  # which grows on the way
        if module.training:
            found.append(module)
        modules.extend(child for child in module._modules.values() if child is not None)  # noqa: SLF001
    return found
