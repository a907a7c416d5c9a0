"""Two processes, each with its share of the data, against one process with all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import pnml
from pnml.pytorch.affine import Affine
from pnml.pytorch.distributed import Found, agree_over_ranks, gather_over_ranks, is_first_rank, sum_over_ranks
from pnml.pytorch.last_layer import LastLayer
from pnml.pytorch.layers import Layer

from .distributed_worker import MANY, SHARES, Skipping, one_layer
from .networks import CNN, images, mlp, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that the ranks wrote into, and what they printed."""
    folder = tmp_path_factory.mktemp("ranks")
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--module"]
    done = subprocess.run(
        [*run, "pytorch.distributed_worker", str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stderr


def assert_tables_agree(tables: Sequence[Any], expected: dict[str, Any], rtol: float = 1e-9) -> None:
    for table in tables:
        assert set(table) == set(expected)
        for name, column in expected.items():
            np.testing.assert_allclose(table[name], column, rtol=rtol, atol=1e-12)


@pytest.mark.filterwarnings("ignore::pnml.core.calibration.PooledClassesWarning")
@pytest.mark.parametrize("how", SHARES)
def test_both_ranks_end_with_the_detector_of_one_process(how: str, finished: tuple[Path, str]) -> None:
    folder, _ = finished
    alone = pnml.guard(mlp().double()).fit([rows(96).double()], progress=False)
    alone.calibrate([rows(96, seed=1).double()], by="prediction", false_alarm_rate=0.2, progress=False)
    expected = alone.fitted()
    loaded = [pnml.Detector.load(folder / f"{how}-{rank}.safetensors") for rank in (0, 1)]
    for detector in loaded:
        assert detector.correlation.count == 96
        assert detector.layer_names == alone.layers == ("0",)
        for layer in (0, 1):
            found, alone_there = (one.correlation.layer_matrix(layer) for one in (detector, expected))
            np.testing.assert_allclose(found, alone_there, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(detector.correlation.class_counts, expected.correlation.class_counts)
        np.testing.assert_allclose(
            detector.correlation.class_sums, expected.correlation.class_sums, rtol=1e-12, atol=1e-12
        )
        np.testing.assert_allclose(detector.correlation.mean_norm, expected.correlation.mean_norm, rtol=1e-12)
        assert (detector.embedding_scale, expected.embedding_scale) == ("auto", "auto")
        # The norms are summed in another order: 96 roundings of 2⁻⁵³ at most.
        assert detector.embedding_length == pytest.approx(expected.embedding_length, rel=1e-12)
        assert detector.embedding_length != 1
        assert detector.threshold is not None
        assert expected.threshold is not None
        assert detector.threshold.count == 96
        assert [one.count for one in detector.threshold.classes] == [one.count for one in expected.threshold.classes]
        np.testing.assert_allclose(detector.threshold.scores, expected.threshold.scores, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(loaded[0].model.subspace.eigenvectors, loaded[1].model.subspace.eigenvectors)
    tables = [np.load(folder / f"{how}-{rank}.npz") for rank in (0, 1)]
    assert_tables_agree(tables, alone(rows(30, seed=2).double()).to_table())


def test_both_ranks_end_with_the_sample_and_the_length_of_one_process(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    alone = pnml.guard(one_layer(), layers="last").fit([rows(MANY).double()], progress=False).fitted()
    assert alone.correlation.sample is not None
    assert len(alone.correlation.sample) < MANY
    for rank in (0, 1):
        detector = pnml.Detector.load(folder / f"many-{rank}")
        assert detector.correlation.sample == alone.correlation.sample
        assert detector.embedding_length == pytest.approx(alone.embedding_length, rel=MANY * 2.0**-52)


def test_a_distributed_model_is_guarded_without_waiting_in_its_forward_pass(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    torch.manual_seed(0)
    alone = pnml.guard(CNN().double()).fit([images(96).double()], progress=False)
    tables = [np.load(folder / f"parallel-{rank}.npz") for rank in (0, 1)]
    assert_tables_agree(tables, alone(images(30, seed=2).double()).to_table())


def test_all_ranks_go_on_without_layers_where_one_has_to(finished: tuple[Path, str]) -> None:
    """The second rank misses a layer in its second batch."""
    folder, _ = finished
    alone = pnml.guard(Skipping(), layers="last").fit([rows(96).double()], progress=False)
    for rank in (0, 1):
        detector = pnml.Detector.load(folder / f"skipping-{rank}.safetensors")
        assert detector.layer_names == ()
        assert detector.correlation.count == 96
        expected = alone.fitted().correlation.matrix
        np.testing.assert_allclose(detector.correlation.matrix, expected, rtol=1e-12, atol=1e-12)
    tables = [np.load(folder / f"skipping-{rank}.npz") for rank in (0, 1)]
    # The sample of training rows is kept in float32, next to features first.
    assert_tables_agree(tables, alone(rows(30, seed=2).double()).to_table(), rtol=1e-6)


def test_every_rank_hears_what_is_wrong(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    for rank in (0, 1):
        assert (folder / f"complaints-{rank}.txt").read_text().splitlines() == [
            "the loader yielded no samples: nothing to fit",
            "the loader yielded no samples: nothing to calibrate on",
            "the ranks found different heads, ['fc0', 'fc1']: run the same model everywhere, or name its head",
            "the ranks disagree on what the model makes of its head's output",
            "the ranks found different layers, [['block0'], ['block1']]: run the same model everywhere, or name them",
            "the ranks found different padding",
            "none",  # where nothing is read that padding could change
            "the ranks' embeddings and features differ in width: [(2,), (3,)]",
        ]


def test_only_the_first_rank_shows_progress(finished: tuple[Path, str]) -> None:
    _, printed = finished
    assert printed.count("2/2") == 1


def test_without_a_process_group_nothing_is_exchanged() -> None:
    statistic, parts = pnml.Correlation().update(np.eye(2)), [1, 2]
    assert sum_over_ranks(statistic) is statistic
    assert gather_over_ranks(parts) is parts
    head = LastLayer("fc", Affine(torch.eye(2), torch.zeros(2)))
    found = Found(head, (Layer("block"),))
    assert agree_over_ranks(found) is found
    assert agree_over_ranks(None) is None
    assert is_first_rank()
