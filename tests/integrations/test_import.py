from __future__ import annotations

import sys

import pytest
import torch

from pnml.integrations import _import


class Library:
    """Records the operators defined in it."""

    declared: list[tuple[str, str]]

    def __init__(self, namespace: str, kind: str) -> None:
        self.namespace = namespace
        self.declared = []

    def define(self, schema: str) -> None:
        self.declared.append((self.namespace, schema.partition("(")[0]))


def test_operators_are_declared_once_if_the_import_fails_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries: list[Library] = []
    monkeypatch.setattr(_import, "_libraries", libraries)
    monkeypatch.setattr(torch.library, "Library", Library)

    def require(module: str, **about: str) -> str:
        if not libraries:
            raise RuntimeError("operator torchvision::nms does not exist")
        return module

    monkeypatch.setattr(_import, "require", require)
    assert _import.import_pytorch_ood("a test") == "pytorch_ood"
    assert [library.declared for library in libraries] == [[("torchvision", "nms"), ("torchvision", "qnms")]]
    assert _import.import_pytorch_ood("a test") == "pytorch_ood"
    assert len(libraries) == 1


def test_other_import_failures_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(module: str, **about: str) -> None:
        raise RuntimeError("CUDA is broken")

    monkeypatch.setattr(_import, "require", fail)
    with pytest.raises(RuntimeError, match="CUDA is broken"):
        _import.import_pytorch_ood("a test")


def test_missing_package_raises_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_ood", None)
    with pytest.raises(ImportError, match=r"a test needs 'pytorch_ood'.*pip install 'pnml\[peers\]'"):
        _import.import_pytorch_ood("a test")
