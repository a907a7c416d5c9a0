"""Shards are whole or not there, and a folder takes only the work it was begun for."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from pnml import Detector
from pnml.engines.summary import Summary
from pnml.engines.work import Scoring, Summing, statistic_of
from pnml.io.embeddings import open_embeddings
from pnml.io.shards import Shards

from .files import FEATURES, embeddings, fitted, head, write_rows
from .pictures import embedded, guard, write_images
from .store import serving

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.io.embeddings import EmbeddingFile

ROWS = embeddings(100, seed=2)
MANIFEST = {"input": "rows", "detector": "mine"}


@pytest.fixture
def samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddingFile:
    monkeypatch.setattr("pnml.io.embeddings.CHUNK_BYTES", 8 * FEATURES * 10)  # chunks of 10 rows
    return open_embeddings(write_rows(tmp_path / "rows.parquet", ROWS, group=25, ids=[f"n{n}" for n in range(100)]))


def test_a_piece_is_scored_as_the_detector_scores_it(samples: EmbeddingFile, tmp_path: Path) -> None:
    detector, shards = fitted(), Shards(tmp_path / "out")
    shards.begin(MANIFEST)
    row = Scoring(samples, detector, shards)(30, 70)
    (path,) = (tmp_path / "out").glob("*.parquet")
    table = pq.read_table(path).to_pydict()
    result = detector(ROWS[30:70]).to_table()
    assert table["id"] == [f"n{n}" for n in range(30, 70)]
    assert [name for name in table if name != "id"] == ["prediction", "probability", "regret", "p_value", "is_ood"]
    for name, column in table.items():
        if name != "id":
            np.testing.assert_allclose(column, result[name], rtol=1e-6)
    regret = result["regret"]
    summary = Summary.from_json(shards.facts(30, 70) or {})
    assert row["summary"]
    assert (summary.rows, summary.flagged) == (40, int(result["is_ood"].sum()))
    found = [summary.least, summary.most, summary.mean]
    np.testing.assert_allclose(found, [regret.min(), regret.max(), regret.mean()], rtol=1e-6)


def test_a_piece_that_is_done_is_not_done_again(samples: EmbeddingFile, tmp_path: Path) -> None:
    shards = Shards(tmp_path / "out")
    shards.begin(MANIFEST)
    work = Scoring(samples, fitted(), shards)
    row = work(0, 50)
    (path,) = (tmp_path / "out").glob("*.parquet")
    written = path.stat().st_mtime_ns
    assert work(0, 50) == row
    assert path.stat().st_mtime_ns == written
    path.write_bytes(path.read_bytes()[:-9])  # half of it, as a store without renaming might keep it
    assert shards.facts(0, 50) is None
    assert work(0, 50) == row
    assert pq.read_table(path).num_rows == 50


def test_a_piece_that_ends_elsewhere_is_refused(samples: EmbeddingFile) -> None:
    with pytest.raises(ValueError, match=r"the rows 0 to 45 of .* end at 50: it changed while it was read"):
        Summing(samples, FEATURES, unit_norm=True)(0, 45)


def test_a_bad_row_is_named_by_its_place_in_the_file(tmp_path: Path) -> None:
    rows = ROWS.copy()
    rows[93] = 0
    samples = open_embeddings(write_rows(tmp_path / "bad.parquet", rows, group=20))
    with pytest.raises(ValueError, match=r"row 93 of .*bad\.parquet, counted from 0, is all zeros"):
        Summing(samples, FEATURES, unit_norm=True)(0, 100)
    rows[93, 2] = np.nan
    samples = open_embeddings(write_rows(tmp_path / "bad.parquet", rows, group=20))
    shards = Shards(tmp_path / "out")
    with pytest.raises(ValueError, match=r"row 93 of .*bad\.parquet, counted from 0, holds nan"):
        Scoring(samples, head().fit(ROWS), shards)(0, 100)


def test_a_piece_of_which_no_image_decodes_keeps_the_columns(tmp_path: Path) -> None:
    subject = guard()
    folder = write_images(tmp_path / "images", 30, spoiled=range(10, 20))
    samples, shards = embedded(folder, subject, batch=5), Shards(tmp_path / "out")
    statistic, skipped = statistic_of(Summing(samples, None, unit_norm=True)(0, 30))
    assert (statistic.count, len(skipped)) == (20, 10)
    none, skipped = statistic_of(Summing(samples, None, unit_norm=True)(10, 20))
    assert (none.count, len(skipped)) == (0, 10)
    work = Scoring(samples, Detector(subject.head.weight, subject.head.bias).merge(statistic), shards)
    for start in (0, 10, 20):
        work(start, start + 10)
    tables = [pq.read_table(path) for path in sorted((tmp_path / "out").iterdir())]
    assert [table.num_rows for table in tables] == [10, 0, 10]
    assert tables[0].schema.equals(tables[1].schema, check_metadata=False)
    assert Summary.from_json(shards.facts(10, 20) or {}).skipped[0] == "0010.png"


def test_a_folder_goes_on_with_the_same_work_only(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    shards = Shards(out)
    shards.begin(MANIFEST)
    shards.write(0, 5, {"id": np.arange(5)}, {"rows": 5})
    shards.begin(MANIFEST)
    with pytest.raises(ValueError, match=r"holds another table: the detector has changed since.*--restart"):
        shards.begin({**MANIFEST, "detector": "another"})
    assert shards.facts(0, 5) == {"rows": 5}
    shards.begin({**MANIFEST, "detector": "another"}, restart=True)
    assert shards.facts(0, 5) is None
    shards.begin({**MANIFEST, "detector": "another"})
    (out / "_manifest.json").write_text("{")
    with pytest.raises(ValueError, match=r"manifest .* is damaged"):
        shards.begin(MANIFEST)


def test_what_others_wrote_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("\\end{document}")
    for restart in (False, True):
        with pytest.raises(ValueError, match="is in the way and was not written by pnml score"):
            Shards(tmp_path / "out").begin(MANIFEST, restart=restart)
    with pytest.raises(ValueError, match="is a file: with --engine ray the table is a folder"):
        Shards(tmp_path / "out" / "thesis.tex").begin(MANIFEST)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]


def test_a_full_disk_leaves_no_half_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = Shards(tmp_path)
    shards.begin(MANIFEST)

    def write_bytes(path: Path, data: Any) -> None:
        with path.open("wb") as file:
            file.write(memoryview(data)[:7])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", write_bytes)
    with pytest.raises(OSError, match="No space left"):
        shards.write(0, 5, {"id": np.arange(5)}, {"rows": 5})
    assert [path.name for path in tmp_path.iterdir()] == ["_manifest.json"]


def test_leftovers_of_killed_writers_are_swept_away(tmp_path: Path) -> None:
    shards = Shards(tmp_path)
    shards.begin(MANIFEST)
    shards.write(0, 5, {"id": np.arange(5)}, {"rows": 5})
    (tmp_path / ".rows-000000000005-000000000009.parquet.123.partial").write_bytes(b"half")
    shards.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "_manifest.json",
        "rows-000000000000-000000000005.parquet",
    ]


def test_a_store_takes_shards_too() -> None:
    with serving() as store:
        shards = Shards(store.uri("bucket/out"))
        shards.begin(MANIFEST)
        shards.write(0, 5, {"id": np.arange(5)}, {"rows": 5})
        assert set(store.objects) == {"bucket/out/_manifest.json", "bucket/out/rows-000000000000-000000000005.parquet"}
        shards.begin(MANIFEST)
        assert shards.facts(0, 5) == {"rows": 5}
        assert shards.facts(5, 10) is None
        shards.begin(MANIFEST, restart=True)
        assert shards.facts(0, 5) is None
