"""A guarded model as one graph: for ONNX Runtime, ``torch.export`` and ``torch.jit.trace``."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pnml.backend.extras import require
from pnml.backend.files import atomic_path
from pnml.core.scorer import compute_terms
from pnml.pytorch.batches import device_of, inputs_of

if TYPE_CHECKING:
    import os

    from pnml.core.calibration import Threshold
    from pnml.pytorch.guard import Guard

OUTPUTS = ("logits", "probabilities", "regret", "p_value", "is_ood")


class GuardGraph(nn.Module):
    """A fitted guard as a module of tensors only: its inputs are the model's, its outputs a tuple.

    The outputs are ``logits``, ``probabilities`` and ``regret``, and once the guard is calibrated ``p_value`` and
    ``is_ood``. A graph cannot raise: a sample whose embedding or features are not finite gets a regret of NaN and is
    flagged. The model runs in the mode it is in: put the guard into eval mode before you export the graph yourself.

    >>> from pnml import guard
    >>> network = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    >>> images = torch.rand(32, 4)
    >>> graph = GuardGraph(guard(network).fit([images], progress=False).eval())
    >>> [tuple(output.shape) for output in torch.export.export(graph, (images,)).module()(images)]
    [(32, 2), (32, 2), (32,)]
    """

    scores: Tensor
    group_of_class: Tensor
    group_of_score: Tensor
    class_sizes: Tensor
    class_limits: Tensor

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        detector = guard.fitted()
        if guard.layers and guard.found_layers is None:
            raise ValueError(
                "the guard was loaded and has not been run yet: call it once with a batch, to see its layers"
            )
        guard.warn_if_changed()
        if detector.task == "multilabel" or (guard.found_head and guard.found_head.ending.reading == "every"):
            raise ValueError("a graph has one score per sample: models of several labels, tokens or pixels have more")
        self.guard = guard
        self.scoring = detector.model
        self.threshold = detector.threshold
        device, reference = device_of(guard.model), torch.empty(0, dtype=torch.float64)
        constants = self.scoring.constants.to(reference)
        self.constant_names = [f"constant{number}" for number in range(len(constants))]
        for name, values in zip(self.constant_names, constants, strict=True):
            self.register_buffer(name, values.to(device).contiguous(), persistent=False)
        if self.threshold is not None:
            self._register_threshold(self.threshold, device)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return OUTPUTS if self.threshold is not None else OUTPUTS[:3]

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """Run the model and its regret on a batch."""
        logits, embeddings, features, *_ = self.guard.run(args, kwargs)
        rows = torch.cat([layer.double() for layer in (embeddings, *features)], dim=1)
        constants = tuple(getattr(self, name) for name in self.constant_names)
        terms = compute_terms(rows, constants, self.scoring, torch.finfo(embeddings.dtype).eps)
        regret = terms.regret(self.scoring.largest_regret)
        regret = torch.where(rows.isfinite().all(dim=-1), regret, torch.nan)
        regret = regret.to(torch.float64 if embeddings.dtype == torch.float64 else torch.float32)
        outputs = (logits, logits.float().softmax(dim=-1), regret)
        if self.threshold is None:
            return outputs
        is_as_large = self.scores >= regret.double()[:, None]
        count: int | Tensor = self.threshold.count
        limit: float | Tensor = self.threshold.value
        if self.threshold.groups is not None:
            prediction = logits.argmax(dim=-1)
            group = self.group_of_class[prediction][:, None]
            is_as_large = is_as_large & ((group == 0) | (self.group_of_score == group))
            count, limit = self.class_sizes[prediction], self.class_limits[prediction].to(regret.dtype)
        p_value = (1 + is_as_large.sum(dim=-1)) / (1 + count)
        return (*outputs, p_value.float(), ~(regret <= limit))

    def _register_threshold(self, threshold: Threshold, device: torch.device) -> None:
        """Hold the calibration scores and, for a threshold by class, what decides about every predicted class."""
        held = {"scores": threshold.scores}
        if threshold.groups is not None and threshold.predictions is not None:
            groups = threshold.groups
            held["group_of_class"] = groups.group_of_class
            held["group_of_score"] = groups.group_of_class[threshold.predictions]
            held["class_sizes"] = groups.group_sizes[groups.group_of_class]
            held["class_limits"] = groups.values
        for name, values in held.items():
            self.register_buffer(name, torch.tensor(values, device=device), persistent=False)


def export_onnx(guard: Guard, example: Any, path: str | os.PathLike[str]) -> Path:
    """Write a fitted guard as one ONNX graph with a dynamic batch, from the model's input to the decision.

    Args:
        guard: a fitted guard; calibrated, if the graph is to give p-values and decisions.
        example: one batch of at least two samples, as a loader yields it: a tensor, an (input, label) tuple, a dict.
        path: where to write; the file is written whole or not at all.

    Returns:
        The path written. The graph's inputs are named as the model's keyword arguments, or ``input``; its outputs
        ``logits``, ``probabilities``, ``regret``, ``p_value`` and ``is_ood``. How its images have to be prepared, if
        the detector knows, is in the graph's metadata as ``pnml.preparation``.
    """
    for module in ("onnx", "onnxscript"):
        require(module, extra="onnx", what="pnml.export_onnx")
    args, kwargs = inputs_of(example, guard.model, guard.inputs)
    if guard.found_layers is None:
        with guard.eval_no_grad():
            guard.find(args, kwargs)
    graph = _ByPosition(GuardGraph(guard), kwargs)
    tensors = args or tuple(kwargs[name] for name in graph.names)
    if any(len(tensor) < 2 for tensor in tensors):
        raise ValueError("the example batch must hold at least two samples, for the size of the batch to stay open")
    shapes = {"tensors": tuple({0: torch.export.Dim.DYNAMIC} for _ in tensors)}
    with guard.eval_no_grad(), warnings.catch_warnings():
        # One part of torch warns of what another part of it does.
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
        onnx_program = torch.onnx.export(
            torch.export.export(graph, tensors, dynamic_shapes=shapes, strict=False),
            dynamo=True,
            input_names=graph.names or ["input"],
            output_names=list(graph.guarded.output_names),
            verbose=False,
        )
    if onnx_program is None:  # pragma: no cover - torch.onnx returns the program whenever dynamo=True
        raise RuntimeError("torch.onnx.export returned no program")
    if guard.fitted().preparation is not None:
        onnx_program.model.metadata_props["pnml.preparation"] = json.dumps(guard.fitted().preparation)
    with atomic_path(path) as partial:
        onnx_program.save(partial, external_data=False)
    return Path(path)


class _ByPosition(nn.Module):
    """A graph that takes its keyword tensors by position: ``torch.export`` cannot open the shapes of ``**kwargs``."""

    def __init__(self, graph: GuardGraph, example: dict[str, Any]) -> None:
        super().__init__()
        self.guarded = graph
        self.names = [name for name, value in example.items() if isinstance(value, Tensor)]
        self.constants = {name: value for name, value in example.items() if name not in self.names}

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        named = dict(zip(self.names, tensors, strict=True)) if self.names else {}
        outputs: tuple[Tensor, ...] = self.guarded(**named, **self.constants) if named else self.guarded(*tensors)
        return outputs
