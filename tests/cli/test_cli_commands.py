"""fit, calibrate, score and inspect on embeddings, compared with the library."""

from __future__ import annotations

import subprocess
import sys
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

import pnml.io.embeddings
from pnml import Detector
from pnml.cli._words import draw_spectrum, effective_rank
from pnml.core.detector_state import VERSION
from pnml.core.scorer import LARGEST_ERROR
from pnml.io.embeddings import EmbeddingFile

from .cli_files import CLASSES, FEATURES, Files, make_files, number_after, succeeds, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pnml.io.source import Chunk


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(pnml.io.embeddings, "CHUNK_BYTES", 8 * FEATURES * 7)  # chunks of seven rows
    return make_files(tmp_path)


@pytest.mark.parametrize("scale", ["auto", "paper", "natural"])
@pytest.mark.parametrize("head_suffix", [".npz", ".safetensors"])
def test_fit_writes_the_detector_of_all_rows(scale: Any, head_suffix: str, files: Files) -> None:
    save_file({"weight": files.weight, "bias": files.bias}, files / "head.safetensors")
    head, out = files / f"head{head_suffix}", files / "new folder" / "detector.safetensors"
    words = ("fit", "--embeddings", files / "train.npy", "--head", head, "--out", out, "--embedding-scale", scale)
    said = succeeds(*words)
    found = Detector.load(out)
    assert found.count == len(files.train)
    assert found.embedding_scale == scale
    assert (found.weight == files.weight).all()
    whole = Detector(files.weight, files.bias, embedding_scale=scale).fit(files.train)
    assert found.embedding_length == pytest.approx(whole.embedding_length, rel=1e-12)  # summed in another order
    np.testing.assert_allclose(found.score(files.new), whole.score(files.new), rtol=LARGEST_ERROR)
    assert f"fitted on 300 rows of {files / 'train.npy'}" in said
    assert f"rank      5 of {FEATURES}" in said
    assert f"classes   {CLASSES}" in said


def test_at_most_two_chunks_are_in_memory(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    path, plain = files.fitted(), EmbeddingFile.chunks
    alive: list[int] = []

    def watched(self: EmbeddingFile, start: int = 0) -> Iterator[Chunk]:
        arrays: list[weakref.ref[Any]] = []
        for chunk in plain(self, start):
            arrays.append(weakref.ref(chunk.embeddings))
            alive.append(sum(array() is not None for array in arrays))
            yield chunk

    monkeypatch.setattr(EmbeddingFile, "chunks", watched)
    succeeds("calibrate", path, "--embeddings", files / "held.npy")
    succeeds("score", path, "--embeddings", files / "new.npy", "--out", files / "scores.csv")
    files.fitted()
    assert len(alive) > 60
    assert max(alive) == 2


@pytest.mark.parametrize("leave_one_out", [False, True])
def test_calibrate_writes_the_threshold_of_all_scores(leave_one_out: bool, files: Files) -> None:  # noqa: FBT001
    path = files.fitted()
    rows, name = (files.train, "train.npy") if leave_one_out else (files.held, "held.npy")
    expected = Detector.load(path).calibrate(rows, false_alarm_rate=0.1, leave_one_out=leave_one_out)
    words = ["calibrate", path, "--embeddings", files / name, "--false-alarm-rate", "0.1"]
    said = succeeds(*words, *(["--leave-one-out"] if leave_one_out else []))
    found = Detector.load(path).threshold
    assert found is not None
    assert found.value == pytest.approx(expected.value, rel=LARGEST_ERROR)  # of chunks, in float32
    np.testing.assert_allclose(found.scores, expected.scores, rtol=LARGEST_ERROR)
    assert (found.source, found.interval) == (expected.source, expected.interval)
    assert number_after("threshold", said) == pytest.approx(expected.value, rel=1e-4)
    assert f"set from {len(rows)} {expected.source} samples to flag 10% of" in said
    assert f"{expected.interval[0]:.1%} to {expected.interval[1]:.1%}" in said
    assert ("the network was trained on these samples" in said) == leave_one_out


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("calibrated", [True, False])
def test_score_writes_what_the_detector_computes(suffix: str, calibrated: bool, files: Files) -> None:  # noqa: FBT001
    path, out = files.fitted(calibrated=calibrated), files / "deep" / f"scores{suffix}"
    said = succeeds("score", path, "--embeddings", files / "new.npy", "--out", out)
    table = table_of(out)
    expected = Detector.load(path)(files.new).to_table()
    decided = ["p_value", "is_ood"] if calibrated else []
    assert list(table) == ["id", "prediction", "probability", "regret", *decided]
    assert table["id"] == list(range(len(files.new)))
    assert table["prediction"] == expected["prediction"].tolist()
    for name in ("probability", "regret", *decided):
        np.testing.assert_allclose(table[name], expected[name], rtol=1e-5, atol=1e-7)
    assert sorted(file.name for file in out.parent.iterdir()) == [out.name]
    assert f"scored 100 rows of {files / 'new.npy'} into {out}" in said
    assert said.endswith(f"to look at them: pnml report {out} --detector {path}\n")
    for word, share in {"min": 0, "median": 0.5, "max": 1}.items():
        regret = np.quantile(expected["regret"], share, method="inverted_cdf")
        assert number_after(word, said) == pytest.approx(regret, abs=1e-5, rel=1e-3)
    assert (f"{expected['is_ood'].sum()} (" if calibrated else "no threshold is set") in said


def test_inspect_prints_what_the_file_holds(files: Files) -> None:
    path = files.fitted()
    said = succeeds("inspect", path)
    assert f"pnml.detector {VERSION}, written by pnml" in said
    assert f"{FEATURES} features to {CLASSES} classes, digest {Detector.load(path).head_digest[:12]}" in said
    assert "fitted on  300 rows of mean norm" in said
    assert f"rank       5 of {FEATURES}" in said
    length, mean_norm = Detector.load(path).embedding_length, np.linalg.norm(files.train, axis=1).mean()
    scale = (
        f"scale      auto: embeddings are scaled to norm {length:.6g}, {length / mean_norm:.2f} of their mean norm\n"
    )
    assert f"{scale}           assumes 0.5% of labels are random\ncomputes   float32 for samples of float32\n" in said
    assert "threshold  none: pnml calibrate sets one" in said
    assert "█████×××" in said
    succeeds("calibrate", path, "--embeddings", files / "held.npy")
    threshold = Detector.load(path).threshold
    assert threshold is not None
    assert f"threshold  {threshold.value:.6g} nats" in succeeds("inspect", path)


@given(st.lists(st.integers(1, 10), min_size=1, max_size=6))
def test_effective_rank_counts_equal_directions(counts: list[int]) -> None:
    assert effective_rank(np.ones(sum(counts))) == pytest.approx(sum(counts))
    assert effective_rank(np.array([1.0, *np.zeros(sum(counts))])) == pytest.approx(1)


@given(
    exponents=st.lists(st.floats(-9, 0), min_size=1, max_size=40), unseen=st.integers(0, 5), width=st.integers(8, 30)
)
def test_drawing_of_the_spectrum_falls_from_left_to_right(exponents: list[float], unseen: int, width: int) -> None:
    values = np.array([10.0**exponent for exponent in sorted(exponents, reverse=True)] + [0.0] * unseen)
    lines = draw_spectrum(values, width)
    columns = min(width, len(values))
    bars = [line[10:].ljust(columns) for line in lines[:-2]]
    heights = [sum(" ▁▂▃▄▅▆▇█".find(bar[column]) for bar in bars) for column in range(columns)]
    seen = [height for height, mark in zip(heights, bars[-1], strict=True) if mark != "×"]
    assert seen == sorted(seen, reverse=True)
    assert seen[0] == 8 * len(bars)
    assert min(seen) >= 7
    assert ("×" in bars[-1]) == (bars[-1][-1] == "×")


def test_help_needs_no_heavy_import() -> None:
    code = (
        "import sys\n"
        "import pnml.cli.calibrate, pnml.cli.export, pnml.cli.fit, pnml.cli.inspect, pnml.cli.score\n"
        "print({'torch', 'pyarrow', 'PIL', 'sklearn', 'scipy', 'onnx', 'matplotlib'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"


def test_commands_of_the_library_stand_without_the_benchmark(tmp_path: Path) -> None:
    code = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'pnml_bench' else find(name, *rest)\n"
        "from pnml.cli import app\n"
        "app(sys.argv[1:])"
    )
    run_without = [sys.executable, "-c", code]
    said = subprocess.run([*run_without, "--help"], capture_output=True, text=True, check=True).stdout
    assert "monitor" in said
    assert "leaderboard" not in said
    refused = subprocess.run([*run_without, "report", str(tmp_path)], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "is a folder of results, which are read by pnml_bench: it is not installed" in refused.stderr
