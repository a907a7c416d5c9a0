"""The guard of a model with several labels a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import pnml
from pnml.core.multilabel import MultiLabelDetector, MultiLabelResult
from pnml.pytorch.export import GuardGraph
from pnml.pytorch.head import HeadWarning

from .classifiers import Then, body
from .networks import CLASSES, FEATURES, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def model(ending: Callable[[Tensor], Tensor]) -> Then:
    torch.manual_seed(0)
    return Then(body(), nn.Linear(FEATURES, CLASSES), ending).eval()


@pytest.mark.parametrize("ending", ["logits", "sigmoid"])
def test_every_label_has_a_regret(ending: str, tmp_path: Path) -> None:
    network = model(torch.sigmoid if ending == "sigmoid" else nn.Identity())
    guard: Any = pnml.guard(network, task="multilabel", layers="last")
    if ending == "sigmoid":
        with pytest.warns(HeadWarning, match="the model ends in sigmoid: the output of its head 'head' is taken"):
            guard.fit([rows(200)], progress=False)
    else:
        guard.fit([rows(200)], progress=False)
    guard.calibrate([rows(60, seed=2)], progress=False)
    assert "multilabel" in repr(guard)
    result: Any = guard(rows(9, seed=1))
    assert isinstance(result, MultiLabelResult)
    layer: Any = network.head
    weight = torch.cat([torch.zeros(1, FEATURES), layer.weight.detach()])
    bias = torch.cat([torch.zeros(1), layer.bias.detach()])
    with torch.no_grad():
        by_hand = MultiLabelDetector(weight, bias).fit(network.body(rows(200)))(network.body(rows(9, seed=1)))
        z = layer(network.body(rows(9, seed=1)))
    torch.testing.assert_close(result.regret, by_hand.regret, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(result.probabilities, z.sigmoid())
    assert result.regret.shape == result.prediction.shape == (9, CLASSES)
    assert {tuple(part.shape) for part in (result.score, result.is_ood, result.p_value)} == {(9,)}  # type: ignore[union-attr]
    guard.save(tmp_path / "detector.safetensors")
    loaded: Any = pnml.guard(network).load(tmp_path / "detector.safetensors")
    assert loaded.task == "multilabel"
    if ending == "logits":
        assert torch.equal(loaded(rows(9, seed=1)).regret, result.regret)


def test_earlier_layers_have_a_say() -> None:
    guard = pnml.guard(model(nn.Identity()), task="multilabel").fit([rows(200)], progress=False)
    assert guard.layers
    strange = guard(20 * rows(9, seed=1))
    assert strange.leverage_by_layer.shape == (9, len(guard.fitted().block_names))
    assert strange.xtg.mean() > guard(rows(9, seed=1)).xtg.mean()


def test_a_graph_of_labels_is_refused() -> None:
    guard = pnml.guard(model(nn.Identity()), task="multilabel").fit([rows(200)], progress=False)
    with pytest.raises(ValueError, match="a graph has one score per sample"):
        GuardGraph(guard)
