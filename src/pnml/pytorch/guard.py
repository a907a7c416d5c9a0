"""Guard: any PyTorch classifier with a regret, a p-value and a decision beside every prediction."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pnml.backend.progress import track
from pnml.core.calibration_scores import CalibrationScores
from pnml.core.conformal import check_share
from pnml.core.detector import Detector
from pnml.core.multilabel import MultiLabelDetector
from pnml.core.placed_result import PlacedResult
from pnml.pytorch.batches import as_loader, inputs_of, naming_batch
from pnml.pytorch.call_inputs import empty_rows, explained_errors, input_ndim, sample_count
from pnml.pytorch.changes import FittedWeights, refuse_changed, refuse_rounded, relation
from pnml.pytorch.distributed import gather_over_ranks, is_first_rank
from pnml.pytorch.fingerprint import fingerprint
from pnml.pytorch.fitted_head import check_same_head, name_of_head
from pnml.pytorch.fitting import TrainingPass
from pnml.pytorch.guarded_model import GuardedModel
from pnml.pytorch.head import logits_of
from pnml.pytorch.last_layer import reading_of
from pnml.pytorch.layers import check_layer_names
from pnml.pytorch.reading import from_reading, to_reading

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence

    from pnml.core.calibration import By, Threshold
    from pnml.core.detector import Task
    from pnml.core.result import Result
    from pnml.core.scaling import EmbeddingScale
    from pnml.pytorch.batches import ChooseInputs
    from pnml.pytorch.fingerprint import Fingerprint
    from pnml.pytorch.last_layer import LastLayer

_LOG = logging.getLogger(__name__)
_FOUND = ("found_head", "head_name", "found_layers", "mask_source", "_input_ndim", "_is_loaded")
"""Attributes of a guard that a fit finds anew, and leaves as they were if it fails."""


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


class Guard(GuardedModel):
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
            not found, or (n, T, M) or (n, H, W, M) where every token or pixel has an answer; ``head`` has to be given
            then, and the embeddings alone are watched.
        logits: takes the logits out of what the model returns, where that is neither a tensor nor holds ``logits``.

    Attributes:
        detector: the fitted :class:`~pnml.Detector`, None before :meth:`fit` or :meth:`load`.
        found_head: the last layer, None while it is not known.
        found_layers: the layers and the axes of their outputs, None while they are not known.
        mask_source: what says which tokens count, where no name of an argument does, None where nothing does.
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
        super().__init__(
            model, head=head, layers=layers, embedding_scale=embedding_scale, task=task, embed=embed, logits=logits
        )
        self.inputs = inputs
        self.detector: Detector | None = None
        self._weights = FittedWeights()
        self._input_ndim: int | None = None
        self._is_loaded = False

    def __repr__(self) -> str:
        known = self.found_layers is not None or not self.may_fall_back
        layers = f"layers {list(self.layers) or 'last'}" if known else f"layers {self._wanted}"
        state = "not fitted" if self.detector is None else self.detector.described_state
        task = "" if self.task == "multiclass" else f"{self.task}, "
        return f"Guard({type(self.plain_model).__name__}, {task}{self.described_head}, {layers}, {state})"

    def fit(self, loader: Iterable[Any], *, progress: bool = True) -> Guard:
        """Learn the training set's embeddings and features in one streaming pass, in O(ΣM²) memory.

        Args:
            loader: yields tensors, tuples of the model's inputs and a label, or dicts that go to the model as keyword
                arguments, labels left out; or a Dataset. Under ``torch.distributed`` each rank passes its own share
                and all end with the same detector.
            progress: show a progress bar on stderr.
        """
        before = {name: getattr(self, name) for name in _FOUND}
        self.found_layers, self._is_loaded = None, False
        try:
            training = TrainingPass(self)
            self._each_batch(loader, training.add, "fit", progress=progress)
            self.detector = training.finish()
            self.detector.model_fingerprint = self._weights.keep(self.all_modules())
        except BaseException:
            for name, value in before.items():
                setattr(self, name, value)
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
        check_share("false_alarm_rate", false_alarm_rate)  # before the pass, not after it
        detector = self.fitted()
        self.warn_if_changed()
        parts: list[CalibrationScores] = []

        def score(_number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
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
        if torch.compiler.is_dynamo_compiling():  # torch.compile(guard) would cut the guard into many small pieces
            whole: Callable[..., Result] = torch.compiler.disable(self._whole)  # type: ignore[no-untyped-call]
            return whole(args, kwargs)
        detector = self.fitted()
        answers_every_place = self.found_head is not None and self.found_head.ending.reading == "every"
        if sample_count(args, kwargs) == 0 and not answers_every_place:
            embeddings, *features = empty_rows(self.model, (detector.n_features, *detector.feature_widths))
            return detector(embeddings, features=features)
        with self.eval_no_grad() as modules, explained_errors(args, kwargs, self._input_ndim):
            outputs = self.run(args, kwargs, modules)
            result = detector.of_rows(outputs.rows, outputs.logits)
            self._warn_if_changed(modules, stacklevel=5)  # now, while a GPU is at work
            return result if outputs.places is None else PlacedResult(result, outputs.places)

    def _whole(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Result:
        """Do what :meth:`forward` does, where ``torch.compile`` of the guard looks away."""
        if not self._passes.is_compiled:
            _LOG.info("torch.compile(guard) compiles nothing: guard.compile() compiles what the guard runs")
        return self.forward(*args, **kwargs)

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
        try:
            reading = from_reading(detector.reading, detector.layer_names)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        known = relation(detector.model_fingerprint, self.model)
        if check_model and known == "rounded":
            raise refuse_rounded(path)
        head_name = self._head_of(detector, path)
        if check_model and known == "other":
            raise refuse_changed(path)
        try:
            check_layer_names(self.plain_model, detector.layer_names)
        except ValueError as error:
            raise ValueError(f"{path} has features of layers that are not of this model: {error}") from error
        self._weights.keep(self.all_modules(), detector.model_fingerprint if known == "same" else None)
        self.detector, self._is_loaded, self.head_name, self.found_head = detector, True, head_name, None
        self.embedding_scale, self.task = detector.embedding_scale, detector.task
        self._wanted, self.found_layers = detector.layer_names or "last", None
        if reading is not None:
            self.found_layers, self.mask_source = reading
        return self

    def _head_of(self, detector: Detector, path: str | os.PathLike[str]) -> str | None:
        """Return the name of the head that a detector was fitted for; None for one that is given."""
        if self._given is not None:
            check_same_head(detector, self._given.affine)
            return None
        with self.eval_no_grad():  # or some parametrisations would change their buffers
            return name_of_head(self.plain_model, detector, path, named=self.head_name)

    def find_head(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LastLayer:
        """Find the head by running the model; a detector that was loaded has to be for this one."""
        found = super().find_head(args, kwargs)
        if self._is_loaded:
            check_same_head(self.fitted(), found.affine)
        return found

    @property
    def known_widths(self) -> tuple[int, ...]:
        """How many features the layers have, where a detector was loaded."""
        return self.fitted().feature_widths if self._is_loaded else ()

    @property
    def known_reading(self) -> str | None:
        """What the model makes of its head's output, where a detector was loaded."""
        return reading_of(self.fitted().head_notes) if self._is_loaded else None

    def empty_detector(self) -> Detector:
        """Return a detector of the model's last layer that is not fitted."""
        kind = MultiLabelDetector if self.task == "multilabel" else Detector
        detector = kind(*self.head, embedding_scale=self.embedding_scale)
        detector.layer_names = self.layers
        detector.head_notes = () if self.found_head is None else self.found_head.notes
        if self.found_layers is not None:
            detector.reading = to_reading(self.head_name or "", self.found_layers, self.mask_source)
        return detector

    def fitted(self) -> Detector:
        """Return the detector; raise ``ValueError`` before :meth:`fit` or :meth:`load`."""
        if self.detector is None:
            raise ValueError("the guard is not fitted: call fit(train_loader) or load(path) first")
        return self.detector

    def model_fingerprint(self) -> Fingerprint:
        """Return digests of the weights of the model, by which a detector file knows it."""
        return fingerprint(self.model)

    def warn_if_changed(self) -> None:
        """Warn if the model's weights are not those that the guard was fitted with, once for every change."""
        self._warn_if_changed(self.all_modules(), stacklevel=4)

    def _warn_if_changed(self, modules: list[nn.Module], *, stacklevel: int) -> None:
        if not torch.compiler.is_compiling():
            self._weights.warn_if_changed(modules, stacklevel=stacklevel)

    def _each_batch(
        self,
        loader: Iterable[Any],
        consume: Callable[[int, tuple[Any, ...], dict[str, Any]], object],
        what: str,
        *,
        progress: bool,
    ) -> None:
        """Call ``consume`` with the number of every batch of a loader, and with the model's arguments in it."""
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
                with naming_batch(number):
                    consume(number, args, kwargs)
