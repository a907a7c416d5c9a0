"""Guard: any PyTorch classifier with a regret, a p-value and a decision beside every prediction."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pnml.calibration import Threshold, calibrate
from pnml.correlation import Correlation
from pnml.detector import Detector, head_digest
from pnml.distributed import gather_over_ranks, sum_over_ranks
from pnml.head import find_head, logits_of, watching
from pnml.progress import track

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from pnml.result import Result
    from pnml.scaling import EmbeddingScale

_LABELS = ("labels", "label", "targets", "target", "y")


def guard(model: nn.Module, *, head: str | None = None, embedding_scale: EmbeddingScale = "paper") -> Guard:
    """Put a guard around a trained classifier.

    >>> network = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))
    >>> images = torch.rand(64, 8, generator=torch.Generator().manual_seed(0))
    >>> guarded = guard(network).fit([images], progress=False)
    >>> guarded(images).regret.shape
    torch.Size([64])
    """
    return Guard(model, head=head, embedding_scale=embedding_scale)


class Guard(nn.Module):
    """A trained classifier together with the detector of its last layer.

    The model is left as it is: its outputs, mode, hooks, gradients and dtype are the same after every call. What the
    guard computes from the embeddings is computed in float64 where the device has it.

    Args:
        model: a trained classifier with an ``nn.Linear`` as its last layer; its output is the logits as a tensor, or a
            dict or Hugging Face output that holds them.
        head: the name of that layer; found by running the first batch when left out.
        embedding_scale: see :class:`~pnml.Detector`.

    Attributes:
        detector: the fitted :class:`~pnml.Detector`, None before :meth:`fit` or :meth:`load`.
    """

    def __init__(self, model: nn.Module, *, head: str | None = None, embedding_scale: EmbeddingScale = "paper") -> None:
        super().__init__()
        self.model = model
        self.embedding_scale: EmbeddingScale = embedding_scale
        self.detector: Detector | None = None
        self.head_name = head
        if head is not None and not isinstance(dict(self._plain.named_modules()).get(head), nn.Linear):
            linear = [name for name, module in self._plain.named_modules() if isinstance(module, nn.Linear)]
            raise ValueError(f"head {head!r} is no nn.Linear of the model; its linear layers are {linear}")

    @property
    def _plain(self) -> nn.Module:
        """The model itself, unwrapped from ``torch.compile``: hooks do not reach into compiled code."""
        plain = getattr(self.model, "_orig_mod", self.model)
        return plain if isinstance(plain, nn.Module) else self.model

    @property
    def head(self) -> nn.Linear:
        """The model's last linear layer."""
        if self.head_name is None:
            raise ValueError("the head is not known yet: call fit(train_loader) first, or name it with head='...'")
        layer = self._plain.get_submodule(self.head_name)
        assert isinstance(layer, nn.Linear)  # noqa: S101 - checked when it was named or found
        return layer

    def fit(self, loader: Iterable[Any], *, progress: bool = True) -> Guard:
        """Learn the training set's embeddings in one streaming pass, in O(M²) memory.

        Args:
            loader: yields tensors, (input, label) tuples, or dicts that go to the model as keyword arguments, labels
                left out. Under ``torch.distributed`` each rank passes its own share and all end with the same detector.
            progress: show a progress bar on stderr.
        """
        statistic = Correlation(unit_norm=self.embedding_scale == "paper")
        with self.undisturbed():
            for _, embeddings in self._embed(loader, "fit", progress=progress):
                statistic.update(embeddings)
        statistic = sum_over_ranks(statistic)
        if statistic.count == 0:
            raise ValueError("the loader yielded no samples: nothing to fit")
        self.detector = Detector(*_arrays_of(self.head), embedding_scale=self.embedding_scale).merge(statistic)
        return self

    def calibrate(
        self,
        loader: Iterable[Any],
        *,
        false_alarm_rate: float = 0.05,
        leave_one_out: bool = False,
        progress: bool = True,
    ) -> Threshold:
        """Set the threshold from in-distribution data.

        Args:
            loader: held-out in-distribution samples; see :meth:`fit` for what it may yield.
            false_alarm_rate: the share of fresh in-distribution samples that may be flagged.
            leave_one_out: say that the loader yields the *training* set; see :meth:`pnml.Detector.calibrate`.
            progress: show a progress bar on stderr.
        """
        detector = self.fitted()
        with self.undisturbed():
            batches = self._embed(loader, "calibrate", progress=progress)
            scores = [detector.score(embeddings, leave_one_out=leave_one_out).cpu() for _, embeddings in batches]
        if not scores:
            raise ValueError("the loader yielded no samples: nothing to calibrate on")
        detector.threshold = calibrate(
            gather_over_ranks(torch.cat(scores)),
            false_alarm_rate=false_alarm_rate,
            source="leave-one-out" if leave_one_out else "held-out",
        )
        return detector.threshold

    def forward(self, *args: Any, **kwargs: Any) -> Result:
        """Run the model and say how far each of its predictions can be trusted.

        Takes what the model takes. The result's ``logits`` are the model's own.
        """
        detector = self.fitted()
        with self.undisturbed():
            logits, embeddings = self.run(args, kwargs)
            with torch.autocast(logits.device.type, enabled=False):
                result = detector(embeddings)
                probabilities = logits.softmax(dim=-1, dtype=result.regret.dtype)
        return replace(result, logits=logits, prediction=logits.argmax(dim=-1), probabilities=probabilities)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the detector to a safetensors file; the model is saved by you, as ever."""
        self.fitted().save(path)

    def load(self, path: str | os.PathLike[str]) -> Guard:
        """Read a detector written by :meth:`save` for this model; one of another last layer is refused."""
        detector = Detector.load(path)
        layers = {name: layer for name, layer in self._plain.named_modules() if isinstance(layer, nn.Linear)}
        names = [self.head_name] if self.head_name else list(layers)
        shaped = [name for name in names if layers[name].weight.shape == detector.weight.shape]
        matches = [name for name in shaped if head_digest(*_arrays_of(layers[name])) == detector.head_digest]
        if not matches:
            raise ValueError(
                f"{path} was fitted for another last layer: one of {detector.n_features} features and "
                f"{detector.n_classes} classes with digest {detector.head_digest[:12]}, which none of this model's "
                f"linear layers {names} is"
            )
        self.head_name, self.detector = matches[-1], detector
        self.embedding_scale = detector.embedding_scale
        return self

    def fitted(self) -> Detector:
        """Give the detector, or say that there is none yet."""
        if self.detector is None:
            raise ValueError("the guard is not fitted: call fit(train_loader) or load(path) first")
        return self.detector

    def _embed(self, loader: Iterable[Any], what: str, *, progress: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield logits and embeddings of every batch of a loader."""
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        for batch in track(loader, what, shown=progress):
            args, kwargs = inputs_of(batch, device)
            if self.head_name is None:
                self.head_name = find_head(self._plain, args, kwargs)
            yield self.run(args, kwargs)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Run the model and give its logits and the embeddings that entered its head."""
        with watching(self.head) as seen:
            logits = logits_of(self._plain(*args, **kwargs))
        embeddings = seen.embeddings
        if embeddings is None:
            raise ValueError(f"the model's forward pass does not go through its head {self.head_name!r}")
        if embeddings.ndim != 2:
            raise ValueError(
                f"one prediction per sample is expected, got embeddings of shape {tuple(embeddings.shape)} at the head"
            )
        return logits, embeddings

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Evaluate without gradients, and leave every module's mode as it was."""
        modes = {module: module.training for module in self.model.modules()}
        self.model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            for module, training in modes.items():
                module.training = training


def inputs_of(batch: Any, device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Split what a loader yields into the model's positional and keyword arguments, on the model's device."""
    if isinstance(batch, Tensor):
        return (batch.to(device, non_blocking=True),), {}
    if isinstance(batch, (tuple, list)) and batch and isinstance(batch[0], Tensor):
        return (batch[0].to(device, non_blocking=True),), {}
    if hasattr(batch, "keys"):
        kept = {key: batch[key] for key in batch.keys() if key not in _LABELS}  # noqa: SIM118 - mappings of any kind
        return (), {key: v.to(device, non_blocking=True) if isinstance(v, Tensor) else v for key, v in kept.items()}
    raise TypeError(
        f"the loader yielded {type(batch).__name__}: expected a tensor, an (input, label) tuple, or a dict of keyword "
        "arguments"
    )


def _arrays_of(layer: nn.Linear) -> tuple[Tensor, Tensor]:
    weight, bias = layer.weight.detach(), getattr(layer, "bias", None)
    return weight, weight.new_zeros(weight.shape[0]) if bias is None else bias.detach()
