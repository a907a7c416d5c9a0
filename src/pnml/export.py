"""A guarded model as one graph: for ONNX Runtime, ``torch.export`` and ``torch.jit.trace``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pnml._extras import require
from pnml._files import atomic_path
from pnml.detector import assess
from pnml.torch_guard import inputs_of

if TYPE_CHECKING:
    import os

    from pnml.torch_guard import Guard

OUTPUTS = ("logits", "probabilities", "regret", "p_value", "is_ood")


class GuardGraph(nn.Module):
    """A fitted guard as a module of tensors only: its inputs are the model's, its outputs a tuple.

    The outputs are ``logits``, ``probabilities`` and ``regret``, and once the guard is calibrated ``p_value`` and
    ``is_ood``. Nothing is checked on the way: a NaN in gives a NaN out.

    >>> from pnml import guard
    >>> network = nn.Linear(4, 2)
    >>> images = torch.rand(32, 4)
    >>> graph = GuardGraph(guard(network).fit([images], progress=False))
    >>> [tuple(output.shape) for output in torch.export.export(graph, (images,)).module()(images)]
    [(32, 2), (32, 2), (32,)]
    """

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        detector = guard.fitted()
        self.guard = guard
        self.embedding_scale = detector.embedding_scale
        self.outside_share = detector.subspace.outside_share(torch.finfo(torch.float32).eps)
        constants = {
            "weight": detector.weight.T,
            "bias": detector.bias,
            "whitening": detector.subspace.whitening,
            "null_space": detector.subspace.null_space,
        }
        self.threshold = detector.threshold
        if self.threshold is not None:
            constants["scores"] = self.threshold.scores
        device = next((p.device for p in guard.model.parameters()), torch.device("cpu"))
        for name, values in constants.items():
            self.register_buffer(name, torch.tensor(values, device=device), persistent=False)
        self.eval()

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the outputs are, in order."""
        return OUTPUTS if self.threshold is not None else OUTPUTS[:3]

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """Run the model and its regret on a batch."""
        logits, embeddings = self.guard.run(args, kwargs)
        x = embeddings.double()
        head, basis = (self.weight, self.bias), (self.whitening, self.null_space)
        *_, regret = assess(x, head, basis, self.outside_share, embedding_scale=self.embedding_scale)
        regret = regret.float()
        outputs = (logits, logits.float().softmax(dim=-1), regret)
        if self.threshold is None:
            return outputs
        as_large = (self.scores >= regret.double()[:, None]).sum(dim=-1)
        p_value = (1 + as_large) / (1 + self.threshold.count)
        return (*outputs, p_value.float(), regret > self.threshold.value)


def export_onnx(guard: Guard, example: Any, path: str | os.PathLike[str]) -> Path:
    """Write a fitted guard as one ONNX graph with a dynamic batch, from the model's input to the decision.

    Args:
        guard: a fitted guard; calibrated, if the graph is to give p-values and decisions.
        example: one batch of at least two samples, as a loader yields it: a tensor, an (input, label) tuple, a dict.
        path: where to write; the file is written whole or not at all.

    Returns:
        The path written. Outputs are named ``logits``, ``probabilities``, ``regret``, ``p_value`` and ``is_ood``.
    """
    for module in ("onnx", "onnxscript"):
        require(module, extra="onnx", what="pnml.export_onnx")
    graph = GuardGraph(guard)
    device = next((p.device for p in guard.model.parameters()), torch.device("cpu"))
    args, kwargs = inputs_of(example, device)
    batch = {0: torch.export.Dim.DYNAMIC}
    shapes: dict[str, Any] = {name: batch if isinstance(a, Tensor) else None for name, a in kwargs.items()}
    if args:
        shapes["args"] = (batch,)
    with torch.no_grad(), guard.undisturbed():
        program = torch.export.export(graph, args, kwargs, dynamic_shapes=shapes, strict=False)
    onnx_program = torch.onnx.export(
        program,
        dynamo=True,
        input_names=["input"] if args else None,
        output_names=list(graph.output_names),
        verbose=False,
    )
    if onnx_program is None:  # pragma: no cover - torch.onnx returns the program whenever dynamo=True
        raise RuntimeError("torch.onnx.export returned no program")
    with atomic_path(path) as partial:
        onnx_program.save(partial, external_data=False)
    return Path(path)
