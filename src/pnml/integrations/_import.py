"""The pytorch-ood package, imported also where torchvision came without its compiled operators."""

from __future__ import annotations

from typing import Any

import torch

from pnml.backend.extras import require

_kept: list[torch.library.Library] = []  # a library takes its schemas with it when it is forgotten


def import_pytorch_ood(what: str) -> Any:
    """Import pytorch-ood, or say how to install it; ``what`` names what needs it.

    >>> import_pytorch_ood("this example").detector.KNN.__name__
    'KNN'
    """
    try:
        return require("pytorch_ood", extra="peers", what=what)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        _declare_torchvision_operators()
        return require("pytorch_ood", extra="peers", what=what)


def _declare_torchvision_operators() -> None:
    """Declare the two operators that torchvision's Python code refers to when it is imported.

    A torchvision built for another PyTorch cannot load its compiled part, and then fails to import. Its datasets and
    transforms, which is what pytorch-ood uses of it, do without that part.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for operator in ("nms", "qnms"):
        schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        library.define(schema)  # type: ignore[no-untyped-call]
    _kept.append(library)
