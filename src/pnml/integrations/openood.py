"""A postprocessor with the interface of OpenOOD 1.5.

Pass it to the evaluator: ``Evaluator(net, id_name="cifar10", postprocessor=PNMLPostprocessor())``. If OpenOOD is
installed, the class inherits from its ``BasePostprocessor``, as the evaluator requires.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from pnml.backend.progress import track
from pnml.core.detector import Detector
from pnml.core.last_layer import checked_head, head_digest
from pnml.integrations._fit import fit_batches, without_layers
from pnml.pytorch.guard import Guard
from pnml.pytorch.head import linear_layers, own_affine
from pnml.pytorch.models import device_of, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from pnml.core.scaling import EmbeddingScale

    Batches = Iterable[Mapping[str, Tensor]]


def _base_class() -> type:
    try:
        base: type = import_module("openood.postprocessors").BasePostprocessor
    except ImportError:
        return object
    return base


class PNMLPostprocessor(_base_class()):  # type: ignore[misc]  # depends on whether OpenOOD is installed
    """The pNML regret as a postprocessor of OpenOOD: the confidence is the negated regret in nats.

    The network must have the interface of OpenOOD's networks: ``net(data, return_feature=True)`` returns the logits
    (n, C) and the inputs of the last layer (n, M), and ``net.get_fc()`` the weight (C, M) and bias (C,) of that layer.
    Where that layer is a module of the network, earlier layers are watched as by :class:`pnml.Guard`; otherwise a
    :class:`~pnml.pytorch.layers.LayersNotFoundWarning` says that they are not.

    Args:
        config: OpenOOD's configuration, which is not used.
        layers: those of :class:`pnml.Guard`: "auto", "last" or names of modules.
        embedding_scale: that of :class:`pnml.Detector`.

    Attributes:
        guard: the :class:`pnml.Guard` of the network, None before :meth:`setup` and for embeddings alone.
        detector: the :class:`pnml.Detector`, None before :meth:`setup`; it can be calibrated and saved.
        APS_mode: False, because there is no hyper-parameter to search for.
    """

    APS_mode = False
    hyperparam_search_done = True

    def __init__(
        self, config: Any = None, *, layers: str | Sequence[str] = "auto", embedding_scale: EmbeddingScale = "auto"
    ) -> None:
        self.config = config
        self.layers = layers
        self.embedding_scale = embedding_scale
        self.guard: Guard | None = None
        self.detector: Detector | None = None

    def setup(self, net: nn.Module, id_loader_dict: Mapping[str, Batches], ood_loader_dict: Any) -> None:
        """Fit on ``id_loader_dict["train"]`` in one pass, unless already fitted; OOD samples are not used."""
        del ood_loader_dict
        if self.detector is not None:
            return
        net.eval()
        images = (batch["data"].to(device_of(net)) for batch in track(id_loader_dict["train"], "pNML setup"))
        weight, bias = net.get_fc()  # type: ignore[operator]
        head = _module_of(net, weight, bias)
        if head is None:
            reason = "no linear layer of the network has the weight and the bias of get_fc()"
            without_layers(reason, self.layers, self.embedding_scale)
        if head is None or self.layers == "last":
            detector = Detector(weight, bias, embedding_scale=self.embedding_scale)
            with torch.no_grad():
                self.detector = fit_batches(detector, (net(x, return_feature=True)[1] for x in images))
        else:
            guard = Guard(net, head=head, layers=self.layers, embedding_scale=self.embedding_scale)
            self.guard = guard.fit(images, progress=False)
            self.detector = guard.detector

    @torch.no_grad()
    def postprocess(self, net: nn.Module, data: Tensor) -> tuple[Tensor, Tensor]:
        """Return the predicted classes and the confidences, each of shape (n,): larger = more in-distribution."""
        if self.detector is None:
            raise ValueError("the postprocessor is not fitted: call setup(net, id_loader_dict, ood_loader_dict) first")
        if self.guard is not None:
            if unwrapped(net) is not unwrapped(self.guard.model):
                raise ValueError("the postprocessor was set up for another network: set up a new one for this network")
            result = self.guard(data)
            return result.prediction, -result.regret
        logits, features = net(data, return_feature=True)
        return logits.argmax(dim=1), -self.detector.score(features)

    def inference(
        self,
        net: nn.Module,
        data_loader: Batches,
        progress: bool = True,  # noqa: FBT001, FBT002 - OpenOOD's signature
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
        """Return predicted classes, confidences and labels of all samples of a loader, each of shape (n,)."""
        batches: list[tuple[Tensor, ...]] = []
        for batch in track(data_loader, "pNML", shown=progress):
            predictions, confidences = self.postprocess(net, batch["data"].to(device_of(net)))
            batches.append((predictions, confidences, batch["label"]))
        predicted, confidence, label = (torch.cat(column).cpu().numpy() for column in zip(*batches, strict=True))
        return predicted.astype(int), confidence, label.astype(int)


def _module_of(net: nn.Module, weight: Any, bias: Any) -> str | None:
    """Return the name of the only linear layer of a network with this weight and bias, None if there is none."""
    digest = head_digest(*checked_head(weight, bias))
    linear = {name: own_affine(layer) for name, layer in linear_layers(unwrapped(net)).items()}
    shaped = {name: own for name, own in linear.items() if own and tuple(own.weight.shape) == tuple(weight.shape)}
    found = [name for name, own in shaped.items() if head_digest(*own) == digest]
    return found[0] if len(found) == 1 else None
