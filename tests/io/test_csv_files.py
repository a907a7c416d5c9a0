"""CSV files: numbers, ids and precision as they were written, from any row on; errors name the line and the column."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnml.io.csv_files import find_records, open_csv
from pnml.io.embeddings import open_embeddings

if TYPE_CHECKING:
    from pathlib import Path

ROWS = np.random.default_rng(0).normal(size=(40, 3))
NAMES = ["f0", "f1", "f2"]


def write(path: Path, rows: Any, header: list[str] = NAMES, **options: Any) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, **options)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def read_all(path: Path, start: int = 0, size: int = 7, **options: Any) -> tuple[list[Any], Any]:
    batches = list(open_csv(path, **options).read(start, size))
    return [name for ids, _ in batches for name in ids], np.concatenate([rows for _, rows in batches])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("start", [0, 13, 39])
def test_numbers_of_either_precision_are_read_back_exactly(dtype: Any, start: int, tmp_path: Path) -> None:
    rows = ROWS.astype(dtype)
    path = write(tmp_path / "rows.csv", [[str(cell) for cell in row] for row in rows])  # the shortest text
    ids, found = read_all(path, start)
    assert ids == list(range(start, len(rows)))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, rows[start:])


LAYOUTS: list[dict[str, Any]] = [
    {"delimiter": ";"},
    {"delimiter": "\t"},
    {"quoting": csv.QUOTE_ALL},
    {"lineterminator": "\n"},
    {"lineterminator": "\n\n"},
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=repr)
def test_layouts_of_other_programs_are_read(layout: dict[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", ROWS, **layout)
    np.testing.assert_array_equal(read_all(path)[1], ROWS)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    np.testing.assert_array_equal(read_all(path)[1], ROWS)


@settings(max_examples=40, deadline=None)
@given(
    names=st.lists(st.text(st.sampled_from('a"\n,\r é;'), min_size=1, max_size=6), min_size=1, max_size=30),
    start=st.floats(0, 0.999),
    size=st.integers(1, 9),
)
def test_quoted_ids_with_line_ends_are_read_from_any_row(
    names: list[str], start: float, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = [f"{number}{name}" for number, name in enumerate(names)]  # a line of blanks alone is no row
    path = write(tmp_path_factory.mktemp("csv") / "rows.csv", zip(names, range(len(names)), strict=True), ["id", "f0"])
    first = int(start * len(names))
    ids, rows = read_all(path, first, size)
    expected = list(csv.reader(io.StringIO(path.read_bytes().decode(), newline="")))[1:]
    assert ids == [row[0] for row in expected][first:] == names[first:]
    assert rows[:, 0].tolist() == list(range(first, len(names)))


def test_lines_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('id,f0\n\n"a\nb",1\n\nc,2\nd,x\n')
    assert [record.line for record in find_records(path).records(0)] == [3, 6, 7]
    with pytest.raises(
        ValueError, match=r"line 7 of .*rows\.csv holds 'x' in column 'f0', where a finite number is exp"
    ):
        read_all(path)


BAD: list[tuple[str, str]] = [
    ("", r"is empty: expected a header"),
    ("id,f0\n", r"is empty: 0 rows of 1 features"),
    ("id,name\na,b\n", r"has no columns of numbers, only id, name"),
    ("f0;f1\n1,5;2\n", r"line 2 of .* holds '1,5' in column 'f0', .*: write it with the digits 0 to 9 and a point"),
    ("f0,f1\n1,2\n1_000.5,1\n", r"line 3 of .* holds '1_000\.5' in column 'f0', .*: write it with the digits 0 to 9"),
    ("f0,f1\n1_0,2\n", r"line 2 of .* holds '1_0' in column 'f0', .*: write it with the digits 0 to 9"),
    (
        "f0,f1\n1,\u0661\u0662\n",
        r"line 2 of .* holds '\u0661\u0662' in column 'f1', .*: write it with the digits",
    ),
    ('f0,f1\n"1.000,5",2\n', r"line 2 of .* holds '1\.000,5' in column 'f0', .*: write it with the digits 0 to 9"),
    ("f0,f1\n1,5,2\n", r"line 2 of .* has 3 cells, the header 2: repair it; decimals need a point, not a comma"),
    ("f0,f1\n1,\n", r"line 2 of .* holds nothing in column 'f1', .* expected: fill it in, or leave the row out"),
    ("f0,f1\n1,nan\n", r"line 2 of .* holds 'nan' in column 'f1', .* expected: fill it in, or leave the row out"),
    ("f0,f1\n1,2\n3\n", r"line 3 of .* has 1 cells, the header 2: repair it"),
    ("f0,f1\n1,2\n3,\n", r"line 3 of .* holds nothing in column 'f1'"),
    ("f0,f1\n1,2\nnan,1\n", r"line 3 of .* holds 'nan' in column 'f0'"),
    ("f0,f1\n1,2\n1,-inf\n", r"line 3 of .* holds '-inf' in column 'f1'"),
    ("f0;f1\n0,5;2\n", r"line 2 of .* holds '0,5' in column 'f0', where a finite"),
    ("0.5,1.5,2,3\n1,2,3,4\n", r"first line of .* holds numbers, where a header is expected: .* f0,f1,f2,\.\.\."),
    ("0\n1\n", r"first line of .* holds numbers, where a header is expected"),
    ("f0,f0\n1,2\n", r"has two columns named 'f0': rename one"),
    ("id,f0\na,1\n,2\n", r"line 3 of .* has no id"),
    ('id,f0\na,1\n"b,2\n', r"line 3 of .* is no CSV .*: close its quotes, or repair it"),
    ('id,f0\na,1\n"b"c,2\n', r"line 3 of .* is no CSV"),
    (
        "f0,features.stem\n1,2\n",
        r"has a column 'features\.stem': features of earlier layers go into \.npz or \.parquet",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_unreadable_csv_raises_with_line_and_column(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        list(open_embeddings(tmp_path / "rows.csv").chunks())


def test_quote_that_is_never_closed_is_found_early(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('id,f0\n"a,1\n' + "b,2\n" * 50_000)
    with pytest.raises(ValueError, match=r"line 2 of .* is no CSV .*: close its quotes, or repair it"):
        open_embeddings(tmp_path / "rows.csv")
