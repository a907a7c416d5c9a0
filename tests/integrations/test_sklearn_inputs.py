"""What data scientists pass: masked arrays, columns of vectors, frames of odd types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from pnml import Detector, Monitor, PNMLClassifier, PNMLOutlierDetector, select

if TYPE_CHECKING:
    from collections.abc import Callable

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = (X[:, 0] + 0.3 * RNG.normal(size=120) > 0).astype(int)
MASKED = np.ma.array(X, mask=np.zeros(X.shape, dtype=bool))
MASKED[5, 1] = np.ma.masked
PIPELINE = make_pipeline(SimpleImputer(), LogisticRegression())


def fitted() -> PNMLClassifier:
    classifier = PNMLClassifier().fit(X, Y)
    classifier.calibrate(X[:60] + 0.01)
    return classifier


@pytest.mark.parametrize(
    "function",
    [
        lambda: PNMLClassifier().fit(MASKED, Y),
        lambda: PNMLClassifier(PIPELINE).fit(MASKED, Y),  # an imputer does not look at the mask
        lambda: PNMLOutlierDetector().fit(MASKED),
        lambda: fitted().regret(MASKED),
        lambda: fitted().predict(MASKED),
        lambda: fitted().predict_proba(MASKED),
        lambda: fitted().is_ood(MASKED),
        lambda: fitted().calibrate(MASKED),
        lambda: PNMLOutlierDetector().fit(X).predict(MASKED),
        lambda: PNMLClassifier(PIPELINE).fit(X, Y).regret(MASKED),
    ],
)
def test_masked_rows_are_refused(function: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="1 of 360 entries is masked, the first in row 5, column 1"):
        function()


def test_masked_labels_and_weights_are_refused() -> None:
    mask = np.arange(120) == 9
    for arguments in (
        {"y": np.ma.array(Y, mask=mask)},
        {"y": Y, "sample_weight": np.ma.array(np.ones(120), mask=mask)},
    ):
        with pytest.raises(ValueError, match="1 of 120 entries is masked, the first in row 9"):
            PNMLClassifier().fit(X, **arguments)


def test_nothing_masked_is_as_a_plain_array() -> None:
    np.testing.assert_array_equal(fitted().regret(np.ma.array(X)), fitted().regret(X))


def test_a_column_of_vectors_is_named_with_what_to_pass() -> None:
    frame = pd.DataFrame({"embedding": list(X), "class": pd.Categorical(np.array(["low", "high"])[Y])})
    advice = r"got one of vectors of 3 numbers: pass np\.stack\(frame\['embedding'\]\)"
    for rows in (frame["embedding"], frame[["embedding"]]):
        with pytest.raises(ValueError, match=advice):
            PNMLClassifier().fit(rows, frame["class"])
        with pytest.raises(ValueError, match=advice):
            fitted().regret(rows)
    with pytest.raises(ValueError, match=r"got shape \(120,\): np\.stack\(x\) joins a column of vectors"):
        Detector(np.eye(3)).fit(frame["embedding"])
    classifier = PNMLClassifier().fit(np.stack(frame["embedding"]), frame["class"])
    assert classifier.classes_.tolist() == ["high", "low"]


def test_a_frame_of_other_types_names_a_conversion_that_keeps_missing_values() -> None:
    frame = pd.DataFrame({"a": [1, None, 3], "b": [True, False, True], "c": [0.1, 0.2, 0.3]})
    frame = frame.astype({"a": "Int64", "c": "Float32"})
    detector = Detector(np.eye(3)).fit(X)
    with pytest.raises(ValueError, match=r"real numbers, got object: .* frame\[names\]\.to_numpy\(float\)"):
        detector(frame)
    assert np.isnan(detector(frame.to_numpy(float)).regret).tolist() == [False, True, False]


def test_a_result_is_no_p_value() -> None:
    result = fitted().detector_(np.c_[X, np.ones(120)])
    with pytest.raises(ValueError, match=r"got a Result: pass its p_value, select\(result\.p_value\)"):
        select(result)


def test_decisions_are_no_scores() -> None:
    decisions = fitted().is_ood(X)
    with pytest.raises(ValueError, match=r"expected p-values, got decisions: pass select\(result\.p_value\)"):
        select(decisions)
    with pytest.raises(ValueError, match="expected regrets, got decisions"):
        Monitor(fitted()).update(torch.as_tensor(decisions))


def test_columns_of_scores_go_into_select_and_a_monitor() -> None:
    frame = pd.DataFrame({"regret": fitted().regret(X), "p": fitted().p_value(X)})
    assert select(frame["p"]).tolist() == select(frame["p"].to_numpy()).tolist()
    one, other = Monitor(fitted()), Monitor(fitted())
    one.update(frame["regret"])
    other.update(frame["regret"].to_numpy())
    assert one.log_evidence == other.log_evidence
