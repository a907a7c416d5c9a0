"""Test the postprocessor with a fake of OpenOOD's evaluator, because OpenOOD is not on PyPI.

The fake makes the same calls in the same order as ``openood.evaluation_api.Evaluator`` of version 1.5.
"""

from __future__ import annotations

import runpy
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from pnml.core.scorer import LARGEST_ERROR
from pnml.integrations.openood import PNMLPostprocessor
from pnml.pytorch.layers import LayersNotFoundWarning

from .factories import CLASSES, Classifier, classifier, inputs, regret_anew

if TYPE_CHECKING:
    from torch import Tensor

Loader = list[dict[str, "Tensor"]]


def loader(n: int, seed: int, scale: float = 1.0) -> Loader:
    x, y = inputs(n, seed, scale), torch.arange(n) % CLASSES
    return [{"data": x[i : i + 32], "label": y[i : i + 32]} for i in range(0, n, 32)]


ID: dict[str, Loader] = {"train": loader(500, 0), "val": loader(50, 3), "test": loader(100, 1)}
OOD: dict[str, Any] = {"val": loader(50, 4, 4.0), "near": {"a": loader(80, 2, 1.2)}, "far": {"b": loader(80, 2, 5.0)}}


class FakeEvaluator:
    """Evaluates a postprocessor as OpenOOD does: in-distribution labels are 0 or more, OOD labels −1."""

    def __init__(self, net: Classifier, postprocessor: PNMLPostprocessor) -> None:
        postprocessor.setup(net, ID, OOD)
        assert not (postprocessor.APS_mode and not postprocessor.hyperparam_search_done)
        self.net, self.postprocessor = net.eval(), postprocessor

    def eval_ood(self) -> dict[str, float]:
        _, ind, labels = self.postprocessor.inference(self.net, ID["test"], False)  # noqa: FBT003 - as OpenOOD calls it
        found = {}
        for split in ("near", "far"):
            for name, data in OOD[split].items():
                _, ood, other = self.postprocessor.inference(self.net, data, False)  # noqa: FBT003
                label = np.concatenate([labels, -np.ones_like(other)])
                found[name] = roc_auc_score(label == -1, -np.concatenate([ind, ood]))
        return found


def images(data: Loader) -> Tensor:
    return torch.cat([batch["data"] for batch in data])


@pytest.mark.parametrize("layers", ["auto", "last"])
def test_evaluator_gets_the_negated_regret(layers: str) -> None:
    net, postprocessor = classifier(), PNMLPostprocessor(None, layers=layers)
    aurocs = FakeEvaluator(net, postprocessor).eval_ood()
    predicted, confidence, labels = postprocessor.inference(net, ID["test"], progress=False)
    assert postprocessor.detector is not None
    assert postprocessor.detector.layer_names == (("body", "input") if layers == "auto" else ())
    expected = regret_anew(net, images(ID["train"]), images(ID["test"]), alone=layers == "last")
    np.testing.assert_allclose(-confidence, expected, rtol=LARGEST_ERROR)
    np.testing.assert_array_equal(predicted, net.fc(net.features(images(ID["test"]))).argmax(dim=1).numpy())
    np.testing.assert_array_equal(labels, np.arange(100) % CLASSES)
    _, ood_confidence, _ = postprocessor.inference(net, OOD["far"]["b"], progress=False)
    both = -np.concatenate([confidence, ood_confidence])
    assert aurocs["b"] == pytest.approx(roc_auc_score([0] * 100 + [1] * 80, both))


def test_a_network_whose_last_layer_is_no_module_is_scored_by_its_features_alone() -> None:
    class Scaled(Classifier):
        def get_fc(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
            weight, bias = super().get_fc()
            return 2 * weight, bias

    net, postprocessor = Scaled().eval(), PNMLPostprocessor()
    with pytest.warns(LayersNotFoundWarning, match=r"no linear layer .* of get_fc\(\)\. The embeddings alone are"):
        postprocessor.setup(net, ID, OOD)
    with pytest.raises(ValueError, match=r"layers=\['body'\] cannot be watched: no linear layer of the network has"):
        PNMLPostprocessor(layers=["body"]).setup(net, ID, OOD)
    assert postprocessor.guard is None
    _, confidence = postprocessor.postprocess(net, images(ID["test"]))
    net.fc.weight.data *= 2
    expected = regret_anew(net, images(ID["train"]), images(ID["test"]), alone=True)
    np.testing.assert_allclose(-confidence, expected, rtol=LARGEST_ERROR)


def test_another_network_is_refused() -> None:
    postprocessor = PNMLPostprocessor()
    postprocessor.setup(classifier(), ID, OOD)
    with pytest.raises(ValueError, match="set up for another network"):
        postprocessor.postprocess(classifier(), inputs(2, seed=0))


def test_setup_fits_once_with_the_embedding_scale(capsys: pytest.CaptureFixture[str]) -> None:
    net, postprocessor = classifier(), PNMLPostprocessor(embedding_scale="natural")
    net.train()
    postprocessor.setup(net, ID, OOD)
    assert not net.training
    assert "pNML setup" in capsys.readouterr().err
    first = postprocessor.detector
    assert first is not None
    assert first.embedding_scale == "natural"
    assert first.correlation.count == 500
    postprocessor.setup(net, {"train": []}, OOD)
    assert postprocessor.detector is first


def test_postprocess_before_setup_raises() -> None:
    with pytest.raises(ValueError, match="call setup"):
        PNMLPostprocessor().postprocess(classifier(), inputs(2, seed=0))


def test_postprocessor_inherits_from_openood_if_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class BasePostprocessor:
        def __init__(self, config: object) -> None:
            self.config = config

    module = ModuleType("openood.postprocessors")
    module.BasePostprocessor = BasePostprocessor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openood", ModuleType("openood"))
    monkeypatch.setitem(sys.modules, "openood.postprocessors", module)
    postprocessor = runpy.run_path(sys.modules["pnml.integrations.openood"].__file__ or "")["PNMLPostprocessor"]
    assert issubclass(postprocessor, BasePostprocessor)
    assert postprocessor("config").config == "config"
