"""The last layer as a weight and a bias."""

from __future__ import annotations

import numpy as np
import pytest

from pnml import Detector


def test_a_single_row_is_refused_with_a_line_that_makes_two_classes_of_it() -> None:
    rng = np.random.default_rng(0)
    weight, bias, x = rng.normal(size=(1, 4)), rng.normal(size=1), rng.normal(size=(50, 4))
    message = r"weight of shape \(1, 4\).*np.vstack\(\[np.zeros_like\(weight\), weight\]\) and np.append\(0, bias\)"
    with pytest.raises(ValueError, match=message):
        Detector(weight, bias)
    detector = Detector(np.vstack([np.zeros_like(weight), weight]), np.append(0, bias)).fit(x)
    p = 1 / (1 + np.exp(-(x @ weight[0] + bias)))
    np.testing.assert_allclose(detector(x).probabilities, np.stack([1 - p, p], axis=1), rtol=1e-9)
