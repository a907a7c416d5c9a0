"""Tables of pandas go in with their names and come out with their index."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from pnml import PNMLClassifier

from .rows import regret_anew

pd = pytest.importorskip("pandas")


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
    expected = regret_anew(rows, rows, classifier.estimator_.decision_function(table))
    np.testing.assert_allclose(classifier.regret(table), expected, rtol=1e-6)
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
