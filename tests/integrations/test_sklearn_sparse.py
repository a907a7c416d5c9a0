"""Sparse rows give the regrets of dense ones and are never made dense as a whole; too many features are refused."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline

from pnml import PNMLClassifier, PNMLOutlierDetector
from pnml.integrations.sklearn import parts

from .rows import Matrix, anew

RNG = np.random.default_rng(0)
DENSE = RNG.poisson(0.3, size=(300, 12)).astype(np.float64)
LABELS = (DENSE[:, :4] @ [1, -1, 1, -1] + 0.1 * RNG.normal(size=300) > 0) + (DENSE[:, 4] > 0)
NEW = RNG.poisson(1.0, size=(20, 12)).astype(np.float64)


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
@pytest.mark.parametrize("chunk", [1 << 22, 50])  # numbers of a chunk: all rows at once, or four at a time
def test_sparse_rows_have_the_regret_of_dense_ones(container: Any, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_CHUNK_NUMBERS", chunk)
    classifier = PNMLClassifier(LogisticRegression()).fit(container(DENSE), LABELS)
    expected = anew(classifier.estimator_, DENSE, NEW).regret
    for rows in (NEW, container(NEW)):
        np.testing.assert_allclose(classifier.regret(rows), expected, rtol=1e-7)
        np.testing.assert_allclose(classifier.predict_proba(rows).sum(axis=1), 1)
    detector = PNMLOutlierDetector().fit(container(DENSE))
    dense = PNMLOutlierDetector().fit(DENSE)
    np.testing.assert_allclose(detector.score_samples(container(NEW)), dense.score_samples(NEW), rtol=1e-9)


def test_sparse_rows_are_never_dense_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_CHUNK_NUMBERS", 1 << 18)
    rows = sparse.csr_array(sparse.random(50_000, 100, density=0.02, random_state=0))
    tracemalloc.start()
    try:
        PNMLOutlierDetector().fit(rows).predict(rows)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.75 * 8 * rows.shape[0] * rows.shape[1]


@pytest.mark.parametrize("labels", [None, np.arange(300) % 2])
def test_too_many_features_are_refused_with_a_way_out(labels: Matrix | None) -> None:
    rows = sparse.csr_array(sparse.random(300, 130_107, density=1e-4, random_state=0))
    estimator: Any = PNMLOutlierDetector() if labels is None else PNMLClassifier(SGDClassifier(loss="log_loss"))
    with pytest.raises(ValueError, match=r"130107 features: expected at most 5000.*TruncatedSVD\(200\)"):
        estimator.fit(rows, labels)


WORDS = ["cat", "dog", "bird", "fish", "eats", "runs", "the", "some", "big", "small"]
TEXTS = [" ".join(RNG.choice(WORDS, size=6)) for _ in range(80)]


def test_texts_go_through_a_pipeline_of_tfidf_and_svd() -> None:
    model = make_pipeline(TfidfVectorizer(), TruncatedSVD(3, random_state=0), LogisticRegression())
    classifier = PNMLClassifier(model).fit(TEXTS, ["eating" if "eats" in text else "fasting" for text in TEXTS])
    assert not hasattr(classifier, "n_features_in_")  # a text has none
    fitted = classifier.estimator_
    assert (classifier.predict(TEXTS) == fitted.predict(TEXTS)).all()
    train, new = fitted[:-1].transform(TEXTS), fitted[:-1].transform(["a dog eats fish", "dog dog"])
    expected = anew(fitted[-1], train, new).regret
    np.testing.assert_allclose(classifier.regret(["a dog eats fish", "dog dog"]), expected, rtol=1e-6)
