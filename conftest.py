"""For all tests: a torchvision without its compiled operators is made importable before anything asks for it."""

from __future__ import annotations

from contextlib import suppress

from pnml.integrations._import import import_pytorch_ood

with suppress(ImportError):  # where pytorch-ood is absent, nobody brought such a torchvision along
    import_pytorch_ood("the tests")
