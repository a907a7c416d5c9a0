"""The estimators pass scikit-learn's own checks of third-party estimators."""

from __future__ import annotations

from typing import Any

from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from pnml import PNMLClassifier, PNMLOutlierDetector

ESTIMATORS = [
    PNMLClassifier(),
    PNMLClassifier(LinearDiscriminantAnalysis()),
    PNMLClassifier(make_pipeline(StandardScaler(), LogisticRegression())),
    PNMLOutlierDetector(),
    PNMLOutlierDetector(contamination="auto"),
]


WITHOUT_WEIGHTS = [
    "check_sample_weights_pandas_series",
    "check_sample_weights_not_an_array",
    "check_sample_weights_list",
    "check_sample_weights_shape",
    "check_sample_weights_not_overwritten",
    "check_sample_weight_equivalence_on_dense_data",
    "check_classifiers_one_label_sample_weights",
]


def not_expected_to_pass(estimator: Any) -> dict[str, str]:
    if isinstance(estimator.estimator, LinearDiscriminantAnalysis):
        return dict.fromkeys(WITHOUT_WEIGHTS, "LinearDiscriminantAnalysis takes no sample_weight")
    if isinstance(estimator.estimator, Pipeline):
        return {
            "check_sample_weight_equivalence_on_dense_data": "StandardScaler of a pipeline gets no weights",
            "check_sample_weight_equivalence_on_sparse_data": "StandardScaler centres no sparse rows",
        }
    return {}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=not_expected_to_pass)  # type: ignore[untyped-decorator]
def test_estimators_pass_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)
