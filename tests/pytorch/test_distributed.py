"""Two processes, each with its share of the data, against one process with all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import pnml

from .distributed_worker import SHARES
from .networks import CNN, images, mlp, rows

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


@pytest.mark.filterwarnings("ignore::pnml.core.calibration.PooledClassesWarning")
@pytest.mark.parametrize("how", SHARES)
def test_both_ranks_end_with_the_detector_of_one_process(how: str, finished: tuple[Path, str]) -> None:
    folder, _ = finished
    alone = pnml.guard(mlp().double()).fit([rows(96).double()], progress=False)
    alone.calibrate([rows(96, seed=1).double()], by="prediction", false_alarm_rate=0.2, progress=False)
    expected = alone(rows(30, seed=2).double()).to_table()
    for rank in (0, 1):
        detector = pnml.Detector.load(folder / f"{how}-{rank}.safetensors")
        assert (detector.count, detector.layer_names) == (96, alone.layers)
        table = np.load(folder / f"{how}-{rank}.npz")
        assert set(table) == set(expected)
        for name, column in expected.items():
            np.testing.assert_allclose(table[name], column, rtol=1e-7, atol=1e-12)
        loaded = pnml.guard(mlp().double()).load(folder / f"{how}-{rank}.safetensors")
        np.testing.assert_allclose(loaded(rows(30, seed=2).double()).regret, expected["regret"], rtol=1e-7)


def test_a_parallel_model_is_guarded(finished: tuple[Path, str]) -> None:
    torch.manual_seed(0)
    alone = pnml.guard(CNN().double()).fit([images(96).double()], progress=False)
    expected = alone(images(30, seed=2).double()).to_table()
    for rank in (0, 1):
        table = np.load(finished[0] / f"parallel-{rank}.npz")
        np.testing.assert_allclose(table["regret"], expected["regret"], rtol=1e-7)


def test_ranks_that_differ_and_ranks_without_data_say_so(finished: tuple[Path, str]) -> None:
    for rank in (0, 1):
        assert (finished[0] / f"complaints-{rank}.txt").read_text().splitlines() == [
            "the loader yielded no samples",
            "the loader yielded no samples",
            "the ranks differ in the head of the model",
            "the ranks differ in the layers of the model",
            "the ranks differ in the mask of the model",
            "the ranks' embeddings and features differ in width",
        ]


def test_one_rank_shows_the_progress(finished: tuple[Path, str]) -> None:
    assert finished[1].count("2/2") == 1
