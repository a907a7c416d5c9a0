"""A file of torch.save is refused with a line of Python that turns it into one that is read."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

from pnml.io.embeddings import open_embeddings
from pnml.io.head import read_head
from pnml.io.model import _load_weights

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def follow_the_advice(function: Callable[[], object]) -> None:
    """Run the line of the error as a shell does."""
    with pytest.raises(ValueError, match=r"is a file of torch\.save, .* give that:\npython -c") as caught:
        function()
    program, *words = shlex.split(str(caught.value).splitlines()[1])
    assert program == "python"
    assert "weights_only=True" in words[1]
    subprocess.run([sys.executable, *words], check=True)


@pytest.mark.parametrize("suffix", [".pt"])
def test_head_of_torch_is_turned_into_safetensors(suffix: str, tmp_path: Path) -> None:
    layer = nn.Linear(4, 3)
    path = tmp_path / f"head{suffix}"
    torch.save(layer.state_dict(), path)
    follow_the_advice(lambda: read_head(path))
    weight, bias = read_head(tmp_path / "head.safetensors")
    assert bias is not None
    np.testing.assert_array_equal(weight, layer.weight.detach())
    np.testing.assert_array_equal(bias, layer.bias.detach())


@pytest.mark.parametrize("key", ["state_dict", None])
def test_weights_of_torch_are_turned_into_safetensors(key: str | None, tmp_path: Path) -> None:
    state = {"running_mean": torch.ones(3), "running_var": torch.full((3,), 2.0)}
    state = {**nn.BatchNorm1d(3).state_dict(), **state}
    path = tmp_path / "it's my model.ckpt"
    torch.save(state if key is None else {"epoch": 3, "optimizer": {"lr": 0.1}, key: state}, path)
    follow_the_advice(lambda: _load(path))
    _load(path.with_suffix(".safetensors"))


def test_whole_models_are_for_the_function_of_the_user(tmp_path: Path) -> None:
    advice = (
        r"whole model, leave --weights out and let your function return torch\.load\('.*whole\.pt', weights_only=False"
    )
    with pytest.raises(ValueError, match=advice):
        _load(tmp_path / "whole.pt")


def _load(path: Path) -> None:
    model = nn.BatchNorm1d(3)
    _load_weights(model, path)
    assert model.running_var is not None
    assert model.running_var.tolist() == [2.0, 2.0, 2.0]


def test_embeddings_of_torch_are_turned_into_npy(tmp_path: Path) -> None:
    rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    torch.save(rows, tmp_path / "rows.pt")
    follow_the_advice(lambda: open_embeddings(tmp_path / "rows.pt"))
    (chunk,) = open_embeddings(tmp_path / "rows.npy").chunks()
    np.testing.assert_array_equal(chunk.embeddings, rows)
