"""Write parquet files of embeddings, and make detectors for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pnml import Correlation, Detector

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

FEATURES, CLASSES = 8, 3
COVERAGE = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
"""The variables that measure coverage in subprocesses, which would slow down those of Ray."""


def embeddings(count: int, seed: int = 0) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(99).normal(size=(FEATURES - 2, FEATURES))  # rows do not span all features
    known = rng.normal(size=(count, FEATURES - 2)) @ mixing
    return (known + 1e-9 * rng.normal(size=known.shape)).astype(np.float32)


def write_rows(path: Path, rows: NDArray[Any], group: int, ids: Sequence[Any] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns: dict[str, Any] = {"embedding": pa.FixedSizeListArray.from_arrays(rows.ravel(), rows.shape[1])}
    if ids is not None:
        columns["id"] = list(ids)
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def layer_features(count: int, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Return features of two earlier layers, which vary about a point that is not 0."""
    rng = np.random.default_rng(seed)
    return {
        "stem": (2 + 0.3 * rng.normal(size=(count, 5))).astype(np.float32),
        "block.1": (1 + 0.5 * rng.normal(size=(count, 3))).astype(np.float32),
    }


def write_layers(path: Path, rows: NDArray[Any], layers: dict[str, NDArray[np.float32]], group: int) -> Path:
    """Write embeddings and the features of earlier layers beside them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"embedding": rows, **{f"features.{name}": features for name, features in layers.items()}}
    lists = {name: pa.FixedSizeListArray.from_arrays(held.ravel(), held.shape[1]) for name, held in columns.items()}
    pq.write_table(pa.table(lists), path, row_group_size=group)
    return path


def write_folder(folder: Path, rows: NDArray[Any], bounds: Sequence[int], group: int) -> Path:
    """Write the rows as several files, which end at the given rows."""
    for number, (start, stop) in enumerate(zip([0, *bounds[:-1]], bounds, strict=True)):
        write_rows(folder / f"part-{number}.parquet", rows[start:stop], group)
    return folder


def assert_same_statistic(one: Correlation, other: Correlation) -> None:
    """Compare every sum to the rounding of float32, and the sample of rows to the last bit."""
    assert (one.count, one.widths) == (other.count, other.widths)
    assert one.sample == other.sample
    np.testing.assert_array_equal(one.class_counts, other.class_counts)
    pairs: list[tuple[Any, Any]] = [(one.class_sums, other.class_sums), (one.norm_sum, other.norm_sum)]
    for number in range(len(other.layout.block_widths)):
        pairs.append((one.block_matrix(number), other.block_matrix(number)))
        pairs.append((one.block_sum(number), other.block_sum(number)))
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


def head() -> Detector:
    rng = np.random.default_rng(7)
    return Detector(rng.normal(size=(CLASSES, FEATURES)), rng.normal(size=CLASSES))


def fitted() -> Detector:
    detector = head().fit(embeddings(500))
    detector.calibrate(embeddings(200, seed=1))
    return detector
