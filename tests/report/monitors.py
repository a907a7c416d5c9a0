"""Monitors of random streams, with and without a change."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import numpy as np

from pnml import Monitor
from pnml.core.calibration import calibrate

from .factories import LAYERS

QUIET, CHANGED = 1000, 500
"""How many samples come before the change, and after."""


@cache
def changed() -> Monitor:
    """Return the monitor of a stream in which class 1 becomes strange, and the first layer gives it away."""
    rng = np.random.default_rng(0)
    threshold = calibrate(rng.gamma(2, 0.1, 400), predictions=rng.integers(0, 3, 400), n_classes=3)
    monitor = Monitor(SimpleNamespace(threshold=threshold, layer_names=LAYERS))
    count = QUIET + CHANGED
    regret, prediction, strangest = rng.gamma(2, 0.1, count), rng.integers(0, 3, count), rng.integers(0, 5, count)
    is_strange = (np.arange(count) >= QUIET) & (prediction == 1)
    monitor.update(np.where(is_strange, 4 * regret, regret), prediction, np.where(is_strange, 1, strangest))
    return monitor


@cache
def quiet() -> Monitor:
    """Return the monitor of a short stream without a change, of which only regrets are known."""
    rng = np.random.default_rng(1)
    monitor = Monitor(calibrate(rng.gamma(2, 0.1, 400)))
    monitor.update(rng.gamma(2, 0.1, 77))
    return monitor
