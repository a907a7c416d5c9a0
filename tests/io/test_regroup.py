"""Pieces do not depend on the batches that they are made of, hold every row once, and few of those with long ids."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pnml.io import regroup as module
from pnml.io.regroup import regroup
from pnml.io.texts import as_texts, join_texts, split_texts

LIMIT = 10


@given(st.lists(st.integers(0, 14), max_size=40), st.integers(1, 9), st.lists(st.integers(1, 7), min_size=1))
def test_pieces_depend_on_rows_alone(lengths: list[int], size: int, steps: list[int]) -> None:
    ids = as_texts("x" * length for length in lengths)
    rows = np.arange(len(ids))[:, None]
    bounds = [0]
    while bounds[-1] < len(ids):
        bounds.append(bounds[-1] + steps[len(bounds) % len(steps)])
    batches = [(ids[a:b], rows[a:b]) for a, b in itertools.pairwise(bounds)]
    before, module._LONGEST = module._LONGEST, LIMIT
    try:
        pieces, whole = list(regroup(batches, size)), list(regroup([(ids, rows)], size))
    finally:
        module._LONGEST = before
    assert [piece.tolist() for _, piece in pieces] == [piece.tolist() for _, piece in whole]
    assert [row for _, piece in pieces for row in piece[:, 0]] == list(range(len(ids)))
    assert [name for names, _ in pieces for name in names] == ids.tolist()
    for names, piece in pieces:
        assert len(names) == 1 or sum(map(len, names)) <= LIMIT
        assert piece[0, 0] // size == piece[-1, 0] // size


def test_pieces_of_numbered_rows_have_the_wanted_size() -> None:
    batches = [(np.arange(n, n + 10), np.ones((10, 2))) for n in range(0, 100, 10)]
    assert [len(ids) for ids, _ in regroup(batches, 32)] == [32, 32, 32, 4]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_are_joined_and_split(texts: list[str]) -> None:
    found = split_texts(*join_texts(as_texts(texts)))
    assert found.tolist() == texts
    assert found.dtype == object


def test_ids_take_the_memory_of_their_text() -> None:
    assert as_texts(["x" * 1_000_000, *("y" * 100_000)]).nbytes == 8 * 100_001
