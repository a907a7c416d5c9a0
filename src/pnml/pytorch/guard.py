"""Guard: any PyTorch classifier with a regret, a p-value and a decision beside every prediction."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pnml.backend.progress import track
from pnml.core.correlation import Correlation
from pnml.core.detector import Detector
from pnml.core.last_layer import head_digest
from pnml.pytorch.distributed import agree_over_ranks, gather_over_ranks, is_first_rank, sum_over_ranks
from pnml.pytorch.head import eager, find_head, linear_layers, logits_of, record_calls, unwrapped

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

    from pnml.core.calibration import Threshold
    from pnml.core.result import Result
    from pnml.core.scaling import EmbeddingScale

_LABELS = ("labels", "label", "targets", "target", "y")


def guard(model: nn.Module, *, head: str | None = None, embedding_scale: EmbeddingScale = "auto") -> Guard:
    """Return a guard around a trained classifier.

    >>> network = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3))
    >>> images = torch.rand(64, 8, generator=torch.Generator().manual_seed(0))
    >>> guarded = guard(network).fit([images], progress=False)
    >>> guarded(images).regret.shape
    torch.Size([64])
    """
    return Guard(model, head=head, embedding_scale=embedding_scale)


class Guard(nn.Module):
    """A trained classifier together with the detector of its last layer.

    The model is left as it is: its outputs, mode, hooks, gradients and dtype are the same after every call, which runs
    it in eval mode without gradients. What the guard computes from the embeddings is computed in float64 where the
    device has it. A model that is in eval mode may be guarded from several threads at once.

    Args:
        model: a trained classifier with an ``nn.Linear`` as its last layer; its output is the logits as a tensor, or a
            dict or Hugging Face output that holds them.
        head: the name of that layer; found by running the first batch when left out.
        embedding_scale: see :class:`~pnml.Detector`.

    Attributes:
        detector: the fitted :class:`~pnml.Detector`, None before :meth:`fit` or :meth:`load`.
    """

    def __init__(self, model: nn.Module, *, head: str | None = None, embedding_scale: EmbeddingScale = "auto") -> None:
        super().__init__()
        self.model = model
        self.embedding_scale: EmbeddingScale = embedding_scale
        self.detector: Detector | None = None
        self.head_name = head
        layers = linear_layers(self._plain)
        if head is not None and head not in layers:
            raise ValueError(f"head {head!r} is no nn.Linear of the model; its linear layers are {list(layers)}")

    @property
    def _plain(self) -> nn.Module:
        """The model itself, out of its wrappers."""
        return unwrapped(self.model)

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
        statistic = Correlation(unit_norm=self.embedding_scale != "natural")
        self._each_batch(loader, statistic.update, "fit", progress=progress)
        self.head_name = agree_over_ranks(self.head_name)
        statistic = sum_over_ranks(statistic)
        if statistic.count + statistic.left_out == 0:
            raise ValueError("the loader yielded no samples: nothing to fit")
        self.detector = Detector(*_arrays_of(self.head), embedding_scale=self.embedding_scale).merge(statistic)
        _ = self.detector.subspace  # decomposed now, so that warnings come from here and the first call is fast
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
        parts = [torch.empty(0)]
        self._each_batch(
            loader,
            lambda embeddings: parts.append(detector.score(embeddings, leave_one_out=leave_one_out).cpu()),
            "calibrate",
            progress=progress,
        )
        scores = gather_over_ranks(torch.cat(parts))
        if len(scores) == 0:
            raise ValueError("the loader yielded no samples: nothing to calibrate on")
        return detector.set_threshold(scores, false_alarm_rate=false_alarm_rate, leave_one_out=leave_one_out)

    def forward(self, *args: Any, **kwargs: Any) -> Result:
        """Run the model on what it takes, and return its logits with regrets, p-values and decisions."""
        detector = self.fitted()
        with self.eval_no_grad():
            logits, embeddings = self.run(args, kwargs)
            return detector(embeddings, logits=logits)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the detector to a safetensors file; the model is saved by you, as ever."""
        self.fitted().save(path)

    def load(self, path: str | os.PathLike[str]) -> Guard:
        """Read a detector written by :meth:`save` for this model; one of another last layer is refused."""
        detector = Detector.load(path)
        layers = linear_layers(self._plain)
        names = [self.head_name] if self.head_name else list(layers)
        shaped = [name for name in names if layers[name].weight.shape == detector.weight.shape]
        matches = [name for name in shaped if head_digest(*_arrays_of(layers[name])) == detector.head_digest]
        if not matches:
            raise ValueError(
                f"{path} was fitted for another last layer: one of {detector.n_features} features and "
                f"{detector.n_classes} classes with digest {detector.head_digest[:12]}, which none of this model's "
                f"linear layers {names} is"
            )
        if len(matches) > 1:
            raise ValueError(
                f"{path} fits more than one layer of this model: say which, pnml.guard(model, head=...), of {matches}"
            )
        self.head_name, self.detector = matches[0], detector
        self.embedding_scale = detector.embedding_scale
        return self

    def fitted(self) -> Detector:
        """Return the detector; raise ``ValueError`` before :meth:`fit` or :meth:`load`."""
        if self.detector is None:
            raise ValueError("the guard is not fitted: call fit(train_loader) or load(path) first")
        return self.detector

    def _each_batch(
        self, loader: Iterable[Any], consume: Callable[[Tensor], object], what: str, *, progress: bool
    ) -> None:
        """Call ``consume`` with the embeddings of every batch of a loader; an error names the batch."""
        if isinstance(loader, Tensor):
            raise TypeError(f"expected a loader of batches, got a tensor of shape {tuple(loader.shape)}: wrap it, [x]")
        device = device_of(self.model)
        with self.eval_no_grad(), closing(track(loader, what, shown=progress and is_first_rank())) as batches:
            for number, batch in enumerate(batches):
                args, kwargs = inputs_of(batch, device)
                if number == 0:
                    self.head_name = find_head(self._plain, args, kwargs, named=self.head_name)
                _, embeddings = self.run(args, kwargs)
                try:
                    consume(embeddings)
                except ValueError as error:
                    raise ValueError(f"batch {number} of the loader: {error}") from error

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Run the model; return its logits and the embeddings that entered its head."""
        with record_calls(self.head) as calls:
            logits = logits_of(eager(self._plain)(*args, **kwargs))
        entered = [call for call in calls if call.output is logits] or calls
        if len(entered) != 1:
            raise ValueError(
                f"{len(entered)} calls of the head {self.head_name!r} with one row per sample were seen in a forward "
                "pass, where one is expected; a head inside a compiled part of the model is not seen"
            )
        return logits, entered[0].embeddings

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


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model's first parameter, where its inputs go."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def inputs_of(batch: Any, device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Split what a loader yields into the model's positional and keyword arguments, on the model's device."""
    if isinstance(batch, (tuple, list)) and batch:
        return inputs_of(batch[0], device)
    if isinstance(batch, Tensor):
        return (batch.to(device, non_blocking=True),), {}
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
