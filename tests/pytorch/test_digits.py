"""Acceptance: a network that knows the digits 0 to 7 is guarded, and meets 8 and 9, letters, and noise."""

from __future__ import annotations

import string
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_digits
from torch import Tensor, nn

import pnml
from pnml.core.calibration_scores import TrainingRowsWarning

from .networks import loader

pytestmark = pytest.mark.slow

RATE = 0.05


@dataclass
class Trained:
    """A guarded network, and images by where they come from."""

    guard: pnml.Guard
    train: Tensor
    held_out: Tensor
    fresh: Tensor
    unknown_digits: Tensor
    accuracy: float

    def flagged(self, images: Tensor) -> float:
        """Give the share of the images that is called out-of-distribution."""
        return float(self.guard(images).is_ood.float().mean())


@pytest.fixture(scope="module")
def trained() -> Trained:
    """Train in float64: in float32, 400 steps make a visibly different network of every processor's rounding."""
    torch.manual_seed(0)
    bunch = load_digits()
    images, labels = torch.tensor(bunch.data / 16), torch.tensor(bunch.target)
    known = (labels < 8).nonzero()[:, 0]
    known = known[torch.randperm(len(known))]
    train, held_out, fresh = known[:643], known[643:843], known[843:]
    network = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 8)
    ).double()
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for _ in range(400):
        batch = train[torch.randint(len(train), (128,))]
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(network(images[batch]), labels[batch]))
        optimizer.step()
    guard = pnml.guard(network).fit(loader(images[train], 128), progress=False)
    guard.calibrate(loader(images[held_out], 128), false_alarm_rate=RATE, progress=False)
    accuracy = float((guard(images[fresh]).prediction == labels[fresh]).float().mean())
    return Trained(guard, images[train], images[held_out], images[fresh], images[labels >= 8], accuracy)


def letters() -> Tensor:
    """The Latin alphabet in both cases, drawn with a font and brought to 8 by 8 as the digits are."""
    font = ImageFont.truetype(str(Path(mpl.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"), 30)
    drawn = []
    for letter in string.ascii_letters:
        canvas = Image.new("L", (32, 32))
        ImageDraw.Draw(canvas).text((16, 16), letter, fill=255, font=font, anchor="mm")
        drawn.append(np.asarray(canvas.resize((8, 8), Image.Resampling.BOX), dtype=np.float64) / 255)
    return torch.from_numpy(np.stack(drawn)).flatten(1)


def noise() -> Tensor:
    return torch.rand(300, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_network_knows_its_digits(trained: Trained) -> None:
    assert trained.accuracy > 0.95


def test_false_alarms_lie_inside_the_stated_interval(trained: Trained) -> None:
    threshold = trained.guard.fitted().threshold
    assert threshold is not None
    low, high = threshold.interval
    assert 0.02 < low < RATE < high < 0.09
    assert low <= trained.flagged(trained.fresh) <= high


def test_false_alarms_over_many_calibration_sets(trained: Trained) -> None:
    """The interval is for the true rate; counted on 600 fresh digits it has the noise of that count as well."""
    pool = torch.cat([trained.held_out, trained.fresh])
    regrets = trained.guard(pool).regret.numpy()
    rng = np.random.default_rng(0)
    realised, inside = [], []
    for _ in range(200):
        held_out, fresh = np.split(rng.permutation(regrets), [len(trained.held_out)])
        threshold = pnml.core.calibration.calibrate(held_out, false_alarm_rate=RATE)
        realised.append(float((fresh > threshold.value).mean()))
        inside.append(threshold.interval[0] <= realised[-1] <= threshold.interval[1])
    assert np.mean(realised) == pytest.approx(RATE, abs=0.01)
    assert np.mean(inside) > 0.85


def test_what_the_network_does_not_know_is_flagged(trained: Trained) -> None:
    assert trained.flagged(noise()) > 0.95
    assert trained.flagged(letters()) > 0.5
    assert trained.flagged(trained.unknown_digits) > 3 * RATE


def test_unknown_samples_have_small_p_values(trained: Trained) -> None:
    known, unknown = (trained.guard(x).p_value for x in (trained.fresh, noise()))
    assert float(known.median()) == pytest.approx(0.5, abs=0.1), "uniform on data like the calibration set"
    assert float(unknown.median()) < 0.01


def test_leave_one_out_calibration_on_the_training_set(trained: Trained) -> None:
    unseen = torch.cat([trained.held_out, trained.fresh])
    rates = {}
    for leave_one_out in (True, False):
        guard = pnml.guard(trained.guard.model).fit(loader(trained.train, 128), progress=False)
        with nullcontext() if leave_one_out else pytest.warns(TrainingRowsWarning, match=r"^643 of 643 .* 100%"):
            guard.calibrate(loader(trained.train, 128), leave_one_out=leave_one_out, progress=False)
        rates[leave_one_out] = float(guard(unseen).is_ood.float().mean())
    assert rates[True] < 2 * RATE, "close to what was asked for"
    assert rates[False] > 2 * RATE, "which scoring training rows as if they were fresh is not"
