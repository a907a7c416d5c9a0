"""What data scientists pass: tables of pandas, masked arrays, columns of vectors, frames of odd types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from pnml import Detector, Monitor, PNMLClassifier, PNMLOutlierDetector, select

from .rows import anew

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
    result = Detector(np.eye(3)).fit(X)(X)
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


def test_tables_of_pandas_go_in_and_come_out() -> None:
    table, y = load_iris(return_X_y=True, as_frame=True)
    table.index = pd.Index([f"flower {number}" for number in table.index])
    model = LogisticRegression(max_iter=1000).fit(table, y)
    fitted = PNMLClassifier(model).fit(table)  # without a warning about names
    assert list(fitted.feature_names_in_) == list(table.columns)
    column = PNMLClassifier(model).fit(table).set_output(transform="pandas").transform(table)
    assert list(column.columns) == ["regret"]
    assert (column.index == table.index).all()
    assert (column["regret"] == fitted.regret(table)).all()
    assert (fitted.predict(table) == model.predict(table)).all()
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.regret(table[table.columns[::-1]])


def test_columns_of_words_and_numbers_go_through_a_column_transformer() -> None:
    table, y = load_iris(return_X_y=True, as_frame=True)
    table["garden"] = np.where(np.arange(150) % 3, "south", "north")
    columns = make_column_transformer((OneHotEncoder(drop="first"), ["garden"]), remainder=StandardScaler())
    model = make_pipeline(columns.set_output(transform="default"), LogisticRegression())
    classifier = PNMLClassifier(model).fit(table, y)
    rows = np.asarray(classifier.estimator_[0].transform(table), dtype=float)
    np.testing.assert_allclose(classifier.regret(table), anew(classifier.estimator_[-1], rows, rows).regret, rtol=1e-6)
    assert list(classifier.feature_names_in_) == list(table.columns)
    assert not hasattr(
        classifier.set_params(estimator=make_pipeline(StandardScaler(), LogisticRegression())).fit(rows, y),
        "feature_names_in_",
    )


def test_pipelines_that_hand_on_tables_give_the_same_regret() -> None:
    table, y = load_iris(return_X_y=True, as_frame=True)
    with_tables = make_pipeline(StandardScaler(), LogisticRegression()).set_output(transform="pandas")
    found = PNMLClassifier(with_tables).fit(table, y).regret(table)
    np.testing.assert_allclose(
        found, PNMLClassifier(make_pipeline(StandardScaler(), LogisticRegression())).fit(table, y).regret(table)
    )
