"""A guarded model as one graph: for ONNX Runtime, ``torch.export`` and ``torch.jit.trace``."""

from __future__ import annotations

import json
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from pnml.backend.extras import require
from pnml.backend.files import atomic_path
from pnml.core.scorer import Chunk, compute_terms, regrets_of
from pnml.pytorch.batches import inputs_of, positional_names
from pnml.pytorch.models import device_of

if TYPE_CHECKING:
    import os

    from torch.export import ExportedProgram

    from pnml.core.calibration import Threshold
    from pnml.pytorch.guard import Guard

_THRESHOLD = "threshold"
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
    >>> program = torch.export.export(graph, (images,), strict=False)
    >>> [tuple(output.shape) for output in program.module()(images)]
    [(32, 2), (32, 2), (32,)]
    """

    scores: Tensor
    limit: Tensor
    group_of_class: Tensor
    group_of_score: Tensor
    class_sizes: Tensor

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        detector = guard.fitted()
        guard.warn_if_changed()
        self.reader = guard.uncompiled_reader()
        if detector.task == "multilabel" or self.reader.contract.head.reading == "every":
            raise ValueError("a graph has one score per sample: models of several labels, tokens or pixels have more")
        self.guard = guard
        self.scoring = detector.model
        self.threshold = detector.threshold
        device = device_of(guard.model)
        constants = self.scoring.constants(torch.empty(0, dtype=torch.float64, device=device), torch.float64)
        leaves, self.constants_tree = tree_flatten(constants)
        self.constant_names = [f"constant{number}" for number in range(len(leaves))]
        for name, leaf in zip(self.constant_names, leaves, strict=True):
            if isinstance(leaf, Tensor):
                self.register_buffer(name, leaf.clone(), persistent=False)  # not views of one tensor
            else:
                setattr(self, name, leaf)
        if self.threshold is not None:
            is_double = any(p.dtype == torch.float64 for p in guard.model.parameters())
            self._register_threshold(self.threshold, device, torch.float64 if is_double else torch.float32)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return OUTPUTS if self.threshold is not None else OUTPUTS[:3]

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """Run the model and its regret on a batch."""
        return self.decide(args, kwargs, None if self.threshold is None else self.limit)

    def decide(self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: Tensor | None) -> tuple[Tensor, ...]:
        """Run the model and its regret on a batch, with a threshold of the caller's: one, or one per class."""
        outputs = self.reader.run(args, kwargs)
        logits = outputs.logits
        embeddings = outputs.embeddings
        rows = outputs.rows.detach().double()
        constants = tree_unflatten([getattr(self, name) for name in self.constant_names], self.constants_tree)
        chunk = Chunk(rows, logits.detach().double(), torch.finfo(embeddings.dtype).eps)
        regret = regrets_of(self.scoring, compute_terms(self.scoring, constants, chunk), rows)
        regret = regret.to(torch.float64 if embeddings.dtype == torch.float64 else torch.float32)
        scored = (logits, logits.float().softmax(dim=-1), regret)
        if self.threshold is None or limit is None:
            return scored
        is_as_large = self.scores >= regret.double()[:, None]
        count: int | Tensor = self.threshold.count
        if self.threshold.groups is not None:
            prediction = logits.argmax(dim=-1)
            group = self.group_of_class[prediction][:, None]
            is_as_large = is_as_large & ((group == 0) | (self.group_of_score == group))
            count = self.class_sizes[prediction]
            limit = limit[prediction]
        p_value = (1 + is_as_large.sum(dim=-1)).float() / (1 + count)  # PyTorch 2.6 exports no quotient of integers
        return (*scored, p_value, ~(regret <= limit.to(regret.dtype)))

    def _register_threshold(self, threshold: Threshold, device: torch.device, dtype: torch.dtype) -> None:
        """Hold the threshold, of every class if it is by class, and the calibration scores with what groups them."""
        buffers = {"scores": torch.tensor(threshold.scores), "limit": torch.tensor(threshold.value, dtype=dtype)}
        if threshold.groups is not None and threshold.predictions is not None:
            groups = threshold.groups
            buffers["group_of_class"] = torch.tensor(groups.group_of_class)
            buffers["group_of_score"] = torch.tensor(groups.group_of_class[threshold.predictions])
            buffers["class_sizes"] = torch.tensor(groups.group_sizes[groups.group_of_class])
            buffers["limit"] = torch.tensor(groups.values, dtype=dtype)
        for name, values in buffers.items():
            self.register_buffer(name, values.to(device), persistent=False)


def export_onnx(guard: Guard, example: Any, path: str | os.PathLike[str]) -> Path:
    """Write a fitted guard as one ONNX graph with a dynamic batch, from the model's input to the decision.

    The length of sequences, the second axis of inputs of whole numbers (tokens and their mask), stays open, too, if the
    model takes sequences of other lengths. The calibrated threshold is the default of an input ``threshold``, which has
    one entry per class if it was calibrated by prediction.

    Args:
        guard: a fitted guard; calibrated, if the graph is to give p-values and decisions.
        example: one batch of at least two samples, as a loader yields it: a tensor, an (input, label) tuple, a dict.
        path: where to write; the file is written whole or not at all.

    Returns:
        The path written. The graph's inputs are named as the model's arguments, or ``input`` where there is one without
        a name; its outputs ``logits``, ``probabilities``, ``regret``, ``p_value`` and ``is_ood``. How its images have
        to be prepared, if the detector knows, is in the graph's metadata as ``pnml.preparation``.
    """
    for module in ("onnx", "onnxscript"):
        require(module, extra="onnx", what="pnml.export_onnx")
    from onnxscript import ir

    args, kwargs = inputs_of(example, guard.model, guard.inputs)
    graph = _ByPosition(GuardGraph(guard), kwargs)
    tensors = args or tuple(kwargs[name] for name in graph.names)
    names = graph.names
    if args:
        names = ["input"] if len(args) == 1 else list(positional_names(guard.model)[: len(args)])
    if any(len(tensor) < 2 for tensor in tensors):
        raise ValueError("the example batch must hold at least two samples, for the size of the batch to stay open")
    with guard.evaluating(), warnings.catch_warnings():
        # One part of torch warns of what another part of it does.
        warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
        warnings.filterwarnings("ignore", message=".*get_attr", category=UserWarning)  # PyTorch 2.6
        onnx_program = torch.onnx.export(
            _exported(graph, tensors, graph.limits),
            dynamo=True,
            input_names=[*names, *([_THRESHOLD] * len(graph.limits))],
            output_names=list(graph.guarded.output_names),
            verbose=False,
        )
    if onnx_program is None:  # pragma: no cover - torch.onnx returns the program whenever dynamo=True
        raise RuntimeError("torch.onnx.export returned no program")
    for limit in graph.limits:  # the calibrated threshold is the default of the last input
        value = onnx_program.model.graph.inputs[-1]
        value.const_value = ir.tensor(limit.cpu().numpy(), name=_THRESHOLD)
        onnx_program.model.graph.register_initializer(value)
    if guard.fitted().preparation is not None:
        onnx_program.model.metadata_props["pnml.preparation"] = json.dumps(guard.fitted().preparation)
    with atomic_path(path) as partial:
        onnx_program.save(partial, external_data=False)
    return Path(path)


def _exported(graph: nn.Module, tensors: tuple[Any, ...], limits: tuple[Tensor, ...]) -> ExportedProgram:
    """Export a graph with the sizes of the batch and of sequences of tokens left open, or of the batch alone."""

    def export(*axes: dict[int, Any]) -> ExportedProgram:
        shapes = {"tensors": (*axes, *({} for _ in limits))}
        return torch.export.export(graph, (*tensors, *limits), dynamic_shapes=shapes, strict=False)

    batch = [{0: torch.export.Dim.DYNAMIC} for _ in tensors]
    are_tokens = [x.ndim == 2 and not x.is_floating_point() for x in tensors]  # or their mask, (n, T)
    lengths = [dict.fromkeys(range(1 + is_long), torch.export.Dim.DYNAMIC) for is_long in are_tokens]
    if lengths != batch:
        with suppress(Exception):  # a model for one length, whatever it raises
            return export(*lengths)
    return export(*batch)


class _ByPosition(nn.Module):
    """A graph that takes its keyword tensors by position: ``torch.export`` cannot open the shapes of ``**kwargs``."""

    def __init__(self, graph: GuardGraph, example: dict[str, Any]) -> None:
        super().__init__()
        self.guarded = graph
        self.names = [name for name, value in example.items() if isinstance(value, Tensor)]
        self.constants = {name: value for name, value in example.items() if name not in self.names}
        self.limits = () if graph.threshold is None else (graph.limit,)  # after the tensors

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(tensors) - len(self.limits)
        inputs = tensors[:count]
        limit = tensors[count] if self.limits else None
        if not self.names:
            return self.guarded.decide(inputs, {}, limit)
        return self.guarded.decide((), {**dict(zip(self.names, inputs, strict=True)), **self.constants}, limit)
