"""Import pytorch-ood, also if the compiled operators of torchvision cannot be loaded."""

from __future__ import annotations

from typing import Any

import torch

from pnml.backend.extras import require

_libraries: list[torch.library.Library] = []  # a library that is garbage-collected removes its operators


def import_pytorch_ood(what: str) -> Any:
    """Return the module; raise an ``ImportError`` with the install command, in which ``what`` needs it, if missing.

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
    """Declare the two operators that torchvision refers to at import.

    A torchvision built for another version of PyTorch cannot load its compiled operators and then fails to import. Its
    datasets and transforms, which pytorch-ood uses, do not need them.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for operator in ("nms", "qnms"):
        schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        library.define(schema)  # type: ignore[no-untyped-call]
    _libraries.append(library)
