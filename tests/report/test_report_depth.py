"""Test what the page says about the layers: counts at every threshold, shares of samples, and words."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pnml import Detector
from pnml.io.scores import score_writer
from pnml.report import Report
from pnml.report.page import render
from pnml.report.scored import report_of_scores

from .factories import LAYERS, layered, page_data_of, scored

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("names", "order", "kinds"),
    [
        (LAYERS, [1, 2, 3, 4, 0], ["early", "early", "late", "late", "late"]),
        (("input", "conv", "lengths"), [1, 2, 0, 3], ["early", "late", "late", "lengths"]),
        (("lengths",), [0, 1], ["late", "lengths"]),
    ],
)
def test_layers_stand_from_input_to_output(names: tuple[str, ...], order: list[int], kinds: list[str]) -> None:
    report = layered(names)
    assert [depth.column for depth in report.depths] == order
    assert [depth.kind for depth in report.depths] == kinds
    assert [depth.name for depth in report.depths] == [("embedding", *names)[column] for column in order]
    page = render(report)
    assert re.findall(r'<tr data-depth="\d" class="(\w+)">', page) == kinds
    assert ("Lengths: how strongly" in page) == ("lengths" in names)
    data = page_data_of(page)
    for one, counts in zip(report.sets, data["sets"], strict=True):
        assert one.strangest is not None
        for step in (0, 17, data["start"], len(data["grid"]) - 1):
            strangest = one.strangest[one.regret > data["grid"][step]]
            assert [row[step] for row in counts["flaggedBy"]] == [int((strangest == column).sum()) for column in order]


def test_every_sample_shows_the_shares_of_its_layers_from_input_to_output() -> None:
    report = layered()
    page = render(report)
    labels = re.findall(r'<svg class="shares"[^>]*aria-label="([^"]*)"', page)
    assert len(labels) == 2 * 24  # the third set knows the strangest layer only
    assert page.count('class="away"') == 3 * 24
    known = report.sets[0]
    assert known.leverage is not None
    best = known.leverage[np.argmin(known.regret)]  # the known set is last, its least trusted samples first
    shares = best[[1, 2, 3, 4, 0, 5]] / best.sum()
    words = [
        f"{name} {100 * share:.0f}%" for name, share in zip((*LAYERS, "embedding", "lengths"), shares, strict=True)
    ]
    assert unescape(labels[36]) == f"Shares of the layers, from input to output: {', '.join(words)}"
    heights = re.findall(r'height="([\d.]+)"><title>', page)[36 * 6 : 37 * 6]
    np.testing.assert_allclose((np.array(heights, dtype=float) - 2) / 26, shares, atol=1e-3)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"leverage": np.ones((90, 5)), "strangest": None}, "has leverages but no strangest layers"),
        ({"leverage": np.ones((90, 3))}, "has leverages of 3 layers, the embedding included: expected 5"),
        ({"leverage": np.ones(90)}, r"the leverage of 'new' has shape \(90,\)"),
        ({"leverage": -np.ones((90, 5))}, "expected finite numbers of 0 or more"),
        ({"leverage": np.ones((89, 5))}, "has 90 regrets but 89 entries in 'leverage'"),
        ({"strangest": np.full(90, 5)}, "has strangest layers from 5 to 5: expected 0, the embedding, to 4"),
    ],
)
def test_layers_that_do_not_fit_raise(columns: dict[str, Any], message: str) -> None:
    columns = {"strangest": np.zeros(90, dtype=np.int64), **columns}
    with pytest.raises(ValueError, match=message):
        Report(title="", facts={}, sets=(scored("new", "out", -1, 90, 3, **columns),), layer_names=LAYERS)


def test_order_of_layers_comes_from_the_table_or_the_detector(tmp_path: Path) -> None:
    columns = {"id": ["a", "b"], "regret": [0.1, 0.5], "strangest_layer": ["embedding", "conv1"]}
    shares = {"leverage.embedding": [2.0, 1.0], "leverage.conv1": [0.0, 4.0], "leverage.conv.2": [1.0, 0.0]}
    paths = tmp_path / "all.csv", tmp_path / "some.parquet"
    for path, table in zip(paths, ({**columns, **shares}, columns), strict=True):
        score_writer(path)(path, [{name: np.array(values) for name, values in table.items()}])
    report = report_of_scores(paths[0])
    (one,) = report.sets
    assert report.layer_names == ("conv1", "conv.2")
    assert one.leverage is not None
    assert one.leverage.tolist() == [[2, 0, 1], [1, 4, 0]]
    assert one.strangest is not None
    assert one.strangest.tolist() == [0, 1]

    alone = report_of_scores(paths[1])
    assert not alone.has_depths
    assert "pass --detector" in alone.facts["Layers"]
    rng = np.random.default_rng(0)
    detector = Detector(rng.normal(size=(3, 5)))
    detector.layer_names = ("conv0", "conv1")
    detector.partial_fit(rng.normal(size=(50, 5)), features=[rng.normal(size=(50, 4)), rng.normal(size=(50, 3))])
    detector.save(tmp_path / "detector.safetensors")
    report = report_of_scores(paths[1], detector=tmp_path / "detector.safetensors")
    assert report.layer_names == ("conv0", "conv1", "lengths")
    assert report.sets[0].strangest is not None
    assert report.sets[0].strangest.tolist() == [0, 2]
    Detector(rng.normal(size=(3, 5))).fit(rng.normal(size=(50, 5))).save(tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match=r"names the layer 'conv1', which is none of \['embedding'\]"):
        report_of_scores(paths[1], detector=tmp_path / "other.safetensors")
