from __future__ import annotations

import sys

import pytest
import torch

from pnml.integrations import _import


class Library:
    """Remembers what was declared in it."""

    declared: list[tuple[str, str]]

    def __init__(self, namespace: str, kind: str) -> None:
        self.namespace = namespace
        self.declared = []

    def define(self, schema: str) -> None:
        self.declared.append((self.namespace, schema.partition("(")[0]))


def test_operators_are_declared_only_where_the_import_fails_for_want_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Library] = []
    monkeypatch.setattr(_import, "_kept", kept)
    monkeypatch.setattr(torch.library, "Library", Library)

    def require(module: str, **about: str) -> str:
        if not kept:
            raise RuntimeError("operator torchvision::nms does not exist")
        return module

    monkeypatch.setattr(_import, "require", require)
    assert _import.import_pytorch_ood("a test") == "pytorch_ood"
    assert [library.declared for library in kept] == [[("torchvision", "nms"), ("torchvision", "qnms")]]
    assert _import.import_pytorch_ood("a test") == "pytorch_ood"
    assert len(kept) == 1


def test_other_failures_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(module: str, **about: str) -> None:
        raise RuntimeError("CUDA is broken")

    monkeypatch.setattr(_import, "require", broken)
    with pytest.raises(RuntimeError, match="CUDA is broken"):
        _import.import_pytorch_ood("a test")


def test_without_the_package_the_install_line_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_ood", None)
    with pytest.raises(ImportError, match=r"a test needs 'pytorch_ood'.*pip install 'pnml\[peers\]'"):
        _import.import_pytorch_ood("a test")
