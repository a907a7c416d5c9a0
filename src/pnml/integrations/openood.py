"""pNML for OpenOOD's evaluator: a postprocessor with the interface of OpenOOD 1.5.

``Evaluator(net, id_name="cifar10", postprocessor=PNMLPostprocessor())`` is all that changes. Where OpenOOD is
installed the class inherits from its ``BasePostprocessor``, on which the evaluator insists.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from pnml.backend.progress import track
from pnml.core.detector import Detector
from pnml.integrations._learn import learn
from pnml.pytorch.guard import device_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from pnml.core.scaling import EmbeddingScale

    Batches = Iterable[Mapping[str, Tensor]]


def _base() -> type:
    try:
        base: type = import_module("openood.postprocessors").BasePostprocessor
    except ImportError:
        return object
    return base


class PNMLPostprocessor(_base()):  # type: ignore[misc]  # known when OpenOOD is, or is not, there
    """The pNML regret as a postprocessor of OpenOOD: its confidence is the regret in nats, negated.

    A network must give what OpenOOD's do: ``net(data, return_feature=True)`` the logits (n, C) and the features (n, M)
    that enter the last layer, and ``net.get_fc()`` that layer's weight (C, M) and bias (C,).

    Args:
        config: OpenOOD's configuration, which holds nothing that the regret needs.
        embedding_scale: as of :class:`pnml.Detector`.

    Attributes:
        detector: the :class:`pnml.Detector` inside, None before :meth:`setup`; it can be calibrated and saved.
        APS_mode: False, for there is no hyper-parameter to search for.
    """

    APS_mode = False
    hyperparam_search_done = True

    def __init__(self, config: Any = None, *, embedding_scale: EmbeddingScale = "auto") -> None:
        self.config = config
        self.embedding_scale = embedding_scale
        self.detector: Detector | None = None

    def setup(self, net: nn.Module, id_loader_dict: Mapping[str, Batches], ood_loader_dict: Any) -> None:
        """Learn from ``id_loader_dict["train"]`` in one streaming pass, once; no OOD sample is looked at."""
        del ood_loader_dict
        if self.detector is not None:
            return
        net.eval()
        detector = Detector(*net.get_fc(), embedding_scale=self.embedding_scale)  # type: ignore[operator]
        with torch.no_grad():
            images = (batch["data"].to(device_of(net)) for batch in track(id_loader_dict["train"], "pNML setup"))
            self.detector = learn(detector, (net(x, return_feature=True)[1] for x in images))

    @torch.no_grad()
    def postprocess(self, net: nn.Module, data: Tensor) -> tuple[Tensor, Tensor]:
        """Give the predicted classes and the confidences, each of shape (n,): larger = more in-distribution."""
        if self.detector is None:
            raise ValueError("the postprocessor is not fitted: call setup(net, id_loader_dict, ood_loader_dict) first")
        logits, features = net(data, return_feature=True)
        return logits.argmax(dim=1), -self.detector.score(features)

    def inference(
        self,
        net: nn.Module,
        data_loader: Batches,
        progress: bool = True,  # noqa: FBT001, FBT002 - their signature
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
        """Give predicted classes, confidences and labels of everything a loader holds, each of shape (n,)."""
        found: list[tuple[Tensor, ...]] = []
        for batch in track(data_loader, "pNML", shown=progress):
            predictions, confidences = self.postprocess(net, batch["data"].to(device_of(net)))
            found.append((predictions, confidences, batch["label"]))
        predicted, confidence, label = (torch.cat(column).cpu().numpy() for column in zip(*found, strict=True))
        return predicted.astype(int), confidence, label.astype(int)
