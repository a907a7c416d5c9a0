"""A column of texts of one's own, and the function that turns them into what the network takes."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pnml.backend.read_errors import naming_file
from pnml.io.parquet_files import label_column, open_parquet
from pnml_bench.data.selection import Selection
from pnml_bench.own.samples import SampleSet, as_labels, digest_samples, limit_note

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Tokenize = Callable[[list[str]], Any]
"""From a list of texts to a tensor, a tuple of tensors or a dict of them, with one row per text."""


@dataclass(frozen=True, eq=False, repr=False)
class Texts(SampleSet):
    """Texts that are turned into tensors whenever they are read.

    Attributes:
        items: the texts.
        tokenize: makes of a list of them what the network takes.
    """

    what: ClassVar[str] = "texts"
    items: Sequence[str]
    tokenize: Tokenize

    def __len__(self) -> int:
        return len(self.items)

    def batches(self, batch_size: int) -> Iterator[Any]:
        """Yield what the function makes of the texts."""
        for start in range(0, len(self), batch_size):
            texts = list(self.items[start : start + batch_size])
            try:
                yield self.tokenize(texts)
            except Exception as error:
                raise ValueError(
                    f"the tokenizer failed on {len(texts)} texts of {self.name} with {type(error).__name__}: {error}"
                ) from error

    def first(self, count: int) -> Texts:
        """Return the set of the first ``count`` texts."""
        return replace(self, items=self.items[:count], labels=None if self.labels is None else self.labels[:count])


class TextSource:
    """Opens the sets of a benchmark on texts.

    Args:
        column: the column of texts in every file.
        tokenize: makes of a list of texts what the network takes.
        limit: take at most this many texts of every set.
    """

    def __init__(self, column: str, tokenize: Tokenize, limit: int | None) -> None:
        self.column = column
        self.tokenize = tokenize
        self.limit = limit

    def open(self, name: str, split: str, seed: int = 0) -> Texts:
        """Open a set; nothing is drawn by the seed."""
        del seed
        path, selection = Path(name), Selection(split, self.limit)
        if not path.is_file() or path.suffix.lower() not in _READERS:
            exists = f"{name} is neither" if path.exists() else f"there is no {name!r}: expected"
            raise ValueError(f"{exists} a .parquet {'nor' if path.exists() else 'or'} a .csv file of texts")
        with naming_file(path):
            texts, numbers, total = _READERS[path.suffix.lower()](path, self.column, selection)
        labels = None if numbers is None or split == "ood" else as_labels(path, *numbers)
        if odd := [row for row, text in enumerate(texts) if not isinstance(text, str)]:
            found = repr(texts[odd[0]])[:80]
            raise ValueError(f"{name} has {found} in the column {self.column!r}, row {odd[0]}: expected a text")
        if not texts:
            raise ValueError(f"{name} is empty: no texts to read")
        digest = digest_samples(((str(number), text) for number, text in enumerate(texts)), labels)
        note = limit_note(len(texts), total)
        return Texts(name, split, labels, note, digest, items=texts, tokenize=self.tokenize)


_Found = tuple[list[Any], "tuple[str, list[Any]] | None", int]


def _read_parquet(path: Path, column: str, selection: Selection) -> _Found:
    table = open_parquet(path)
    _check_column(path, column, table.schema.names)
    labels = label_column(table.schema)
    held = table.take([column] if labels is None else [column, labels], selection.rows(table.count))
    return held[column], None if labels is None else (labels, held[labels]), table.count


def _read_csv(path: Path, column: str, selection: Selection) -> _Found:
    with path.open(newline="", encoding="utf-8-sig") as file:  # which Excel begins with a mark
        reader = csv.DictReader(file)
        names = list(reader.fieldnames or ())
        _check_column(path, column, names)
        rows = list(reader)
    chosen = [rows[row] for row in selection.rows(len(rows))]
    labels = next((name for name in names if name != column and "label" in name.lower()), None)
    found = None if labels is None else (labels, [row[labels] for row in chosen])
    return [row[column] for row in chosen], found, len(rows)


def _check_column(path: Path, column: str, names: Sequence[str]) -> None:
    if column not in names:
        raise ValueError(f"{path} has no column {column!r}: it has {', '.join(names) or 'none'}; --column names one")


_READERS = {".parquet": _read_parquet, ".csv": _read_csv}
