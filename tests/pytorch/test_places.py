"""Models with an answer for every token or pixel: one regret each, in the shape of the answers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import pnml
from pnml.pytorch.export import GuardGraph
from pnml.pytorch.head import HeadNotFoundError, HeadWarning
from pnml.pytorch.layers import LayersNotFoundError, LayersNotFoundWarning

from .networks import CLASSES, FEATURES, images, seeded


class Segmenter(nn.Module):
    """Logits (n, C, H, W)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(3, FEATURES, 3, padding=1), nn.Tanh())
        self.head = nn.Conv2d(FEATURES, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


def tagger() -> Any:
    transformers: Any = import_module("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=FEATURES,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        initializer_range=0.3,
        num_labels=CLASSES,
    )
    return transformers.BertForTokenClassification(config).eval()


def sentences(count: int, seed: int) -> dict[str, Tensor]:
    lengths = torch.randint(3, 9, (count,), generator=seeded(seed + 100))
    mask = (torch.arange(8) < lengths[:, None]).long()
    return {"input_ids": torch.randint(1, 50, (count, 8), generator=seeded(seed)) * mask, "attention_mask": mask}


def test_every_pixel_has_a_regret() -> None:
    model = Segmenter().eval()
    guard = pnml.guard(model, layers="last").fit([images(20)], progress=False)
    guard.calibrate([images(6, seed=2)], progress=False)
    assert "every token or pixel" in repr(guard)
    fresh = images(3, seed=1)[:, :, :, :6]
    result = guard(fresh)
    with torch.no_grad():
        train, seen = (model.body(x).permute(0, 2, 3, 1).reshape(-1, FEATURES) for x in (images(20), fresh))
        logits = model(fresh)
    assert model.head.bias is not None
    detector = pnml.Detector(model.head.weight.detach().flatten(1), model.head.bias.detach()).fit(train)
    assert len(result) == 3
    torch.testing.assert_close(result.regret, detector.score(seen).reshape(3, 8, 6), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(result.logits, logits.permute(0, 2, 3, 1))
    assert torch.equal(result.prediction, logits.argmax(dim=1))
    shapes = {name: tuple(getattr(result, name).shape) for name in ("xtg", "p_value", "is_ood", "leverage_by_layer")}
    assert shapes == {"xtg": (3, 8, 6), "p_value": (3, 8, 6), "is_ood": (3, 8, 6), "leverage_by_layer": (3, 8, 6, 1)}
    assert result.probabilities.shape == result.pnml_probabilities.shape == (3, 8, 6, CLASSES)
    assert {len(column) for column in result.to_table().values()} == {3 * 8 * 6}
    assert torch.equal(result[1].regret, result.regret[1:2])
    assert "3 samples" in repr(result)
    threshold = guard.fitted().threshold
    assert threshold is not None
    assert threshold.count == 6 * 64, "every pixel is one sample of the calibration"
    assert torch.equal(result.is_ood, result.regret > threshold.value)


def test_every_token_has_a_regret_and_padding_is_not_learnt_from() -> None:
    model, train, fresh = tagger(), sentences(40, 0), sentences(5, 1)
    guard = pnml.guard(model, layers="last").fit([train], progress=False)
    threshold = guard.calibrate([sentences(20, 2)], progress=False)
    result = guard(**fresh)

    def embed(batch: dict[str, Tensor]) -> Tensor:
        with torch.no_grad():
            found: Tensor = model.base_model(**batch).last_hidden_state
        return found

    counts = train["attention_mask"].bool()
    detector = pnml.Detector(model.classifier.weight, model.classifier.bias).fit(embed(train)[counts])
    assert guard.fitted().correlation.count == int(counts.sum())
    np.testing.assert_allclose(detector.correlation.matrix, guard.fitted().correlation.matrix, rtol=1e-5, atol=1e-6)
    by_hand = detector.score(embed(fresh).reshape(-1, FEATURES)).reshape(5, 8)
    torch.testing.assert_close(result.regret, by_hand, rtol=1e-3, atol=1e-5)
    assert result.logits.shape == (5, 8, CLASSES)
    assert threshold.count == int(sentences(20, 2)["attention_mask"].sum())


def test_earlier_layers_are_left_out_with_a_warning_or_refused_where_they_are_named() -> None:
    model = Segmenter().eval()
    with pytest.warns(LayersNotFoundWarning, match="every token or pixel has an answer of its own"):
        guard = pnml.guard(model).fit([images(20)], progress=False)
    assert guard.layers == ()
    with pytest.raises(LayersNotFoundError, match=r"layers=\['body'\]: every token or pixel"):
        pnml.guard(model, layers=["body"]).fit([images(20)], progress=False)


def test_resized_logits_are_guarded_by_resized_embeddings() -> None:
    class Resized(Segmenter):
        def forward(self, x: Tensor) -> Tensor:
            return functional.interpolate(super().forward(x), scale_factor=2, mode="bilinear")

    def embed(model: Any, x: Tensor) -> Tensor:
        return functional.interpolate(model.body(x), scale_factor=2, mode="bilinear").permute(0, 2, 3, 1)

    model = Resized().eval()
    with pytest.raises(HeadNotFoundError, match="embed="):
        pnml.guard(model).fit([images(20)], progress=False)
    assert model.head.bias is not None
    head = model.head.weight.detach().flatten(1), model.head.bias.detach()
    guard = pnml.guard(model, head=head, embed=embed).fit([images(20)], progress=False)
    result = guard(images(2, seed=1))
    with torch.no_grad():
        train, seen = (embed(model, x).reshape(-1, FEATURES) for x in (images(20), images(2, seed=1)))
        logits = model(images(2, seed=1))
    by_hand = pnml.Detector(*head).fit(train).score(seen).reshape(2, 16, 16)
    torch.testing.assert_close(result.regret, by_hand, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(result.logits, logits.permute(0, 2, 3, 1), rtol=1e-4, atol=1e-5)
    with pytest.raises(HeadNotFoundError, match=r"shape \(20, 8, 8, 5\), and the model gives \(20, 5, 16, 16\)"):
        pnml.guard(model, head=head, embed=lambda model, x: model.body(x).permute(0, 2, 3, 1)).fit([images(20)])


def test_a_softmax_over_channels_is_undone() -> None:
    plain = Segmenter().eval()
    expected = pnml.guard(plain, layers="last").fit([images(20)], progress=False)(images(2, seed=1))
    model = nn.Sequential(plain, nn.Softmax(dim=1))
    guard = pnml.guard(model, layers="last")
    with pytest.warns(HeadWarning, match="ends in softmax"):
        guard.fit([images(20)], progress=False)
    result = guard(images(2, seed=1))
    assert torch.equal(result.regret, expected.regret)
    with torch.no_grad():
        torch.testing.assert_close(result.probabilities, model(images(2, seed=1)).permute(0, 2, 3, 1))


def test_a_mask_of_one_channel_is_two_classes_of_every_pixel() -> None:
    model = Segmenter().eval()
    model.head = nn.Conv2d(FEATURES, 1, 1)
    guard = pnml.guard(nn.Sequential(model, nn.Sigmoid()), layers="last")
    with pytest.warns(HeadWarning, match=r"logits \(0, z\) of two classes"):
        guard.fit([images(20)], progress=False)
    result = guard(images(2, seed=1))
    assert result.regret.shape == (2, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(result.probabilities[..., 1], model(images(2, seed=1)).sigmoid()[:, 0])


def test_labels_of_every_pixel_are_refused() -> None:
    with pytest.raises(HeadNotFoundError, match="every token or pixel has 5 labels of its own"):
        pnml.guard(Segmenter().eval(), task="multilabel").fit([images(20)], progress=False)


def test_a_graph_of_every_pixel_is_refused() -> None:
    guard = pnml.guard(Segmenter().eval(), layers="last").fit([images(20)], progress=False)
    with pytest.raises(ValueError, match="a graph has one score per sample"):
        GuardGraph(guard)
