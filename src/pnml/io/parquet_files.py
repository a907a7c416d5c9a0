"""Stream parquet files as tables of a fixed number of rows, and embeddings from them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.io.feature_columns import PREFIX, check_distinct, choose_columns, choose_layers
from pnml.io.paths import PathOrUri, find_parquet_files, pyarrow
from pnml.io.source import RowReader
from pnml.io.texts import as_texts, decode_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_BUFFER = 1 << 16  # bytes read ahead per column; without it whole row groups are held
_REMOTE_BUFFER = 1 << 23  # the same for all columns of a store, where every read is a request
_FOOTERS_AT_ONCE = 16
_ROWS_AT_ONCE = 1024  # of which some are taken


@dataclass(frozen=True)
class ParquetFiles:
    """One parquet file, or several with the same columns, read as one table."""

    filesystem: Any  # of pyarrow, as the schema
    files: tuple[tuple[str, tuple[int, ...]], ...]  # the path of each, and the numbers of rows of its row groups
    schema: Any
    id_bytes: int = 0  # of an id, on average in the row group of the longest; 0 without ids

    @property
    def count(self) -> int:
        """The number of rows."""
        return sum(sum(groups) for _, groups in self.files)

    @property
    def starts(self) -> tuple[int, ...]:
        """The first row of every row group."""
        return (0, *accumulate(rows for _, groups in self.files for rows in groups))[:-1]

    def tables(self, columns: list[str], start: int, size: int) -> Iterator[tuple[int, Any]]:
        """Yield tables of ``size`` rows from ``start`` on (fewer at the end), with the number of their first row."""
        arrow = pyarrow()
        first = start
        rest = None
        for batch in self._batches(columns, start, size):
            table = arrow.Table.from_batches([batch]).replace_schema_metadata()
            rest = table if rest is None else arrow.concat_tables([rest, table])
            while rest.num_rows >= size:
                yield first, rest.slice(0, size)
                first += size
                rest = rest.slice(size)
        if rest is not None and rest.num_rows:
            yield first, rest

    def take(self, columns: Sequence[str], rows: NDArray[np.intp]) -> dict[str, list[Any]]:
        """Return the values of columns in ascending rows; the others are read, but not kept."""
        values: dict[str, list[Any]] = {name: [] for name in columns}
        for first, table in self.tables(list(columns), 0, _ROWS_AT_ONCE):
            part = table.take(rows[(rows >= first) & (rows < first + table.num_rows)] - first)
            for name in columns:
                values[name] += part.column(name).to_pylist()
        return values

    def _batches(self, columns: list[str], start: int, size: int) -> Iterator[Any]:
        for path, groups in self.files:
            skipped = 0
            while skipped < len(groups) and groups[skipped] <= start:
                start -= groups[skipped]
                skipped += 1
            if skipped == len(groups):
                continue
            with _open_file(self.filesystem, path, len(columns)) as file:
                if _group_rows(file) != groups:
                    raise ValueError(f"{path} changed while it was read: run the command again")
                for batch in file.iter_batches(size, row_groups=range(skipped, len(groups)), columns=columns):
                    yield batch.slice(start)
                    start = max(0, start - batch.num_rows)


def open_parquet(path: PathOrUri) -> ParquetFiles:
    """Open a parquet file, or all those of a folder, for streaming; only their footers are read now."""
    filesystem, listing = find_parquet_files(path)

    def read_footer(file_path: str) -> tuple[tuple[int, ...], Any, int]:
        with _open_file(filesystem, file_path) as file:
            rows = _group_rows(file)
            if "id" in file.schema_arrow.names and rows and filesystem.type_name == "local":
                # A damaged column of ids is an error here, and ends the process where its size is asked for.
                next(file.iter_batches(1, row_groups=[0], columns=["id"]), None)
            return rows, file.schema_arrow, _id_bytes(file.metadata)

    paths = [info.path for info in listing]
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        footers = list(pool.map(read_footer, paths))
    schema = footers[0][1]
    check_distinct(path, schema.names)
    for file_path, (_, other, _) in zip(paths, footers, strict=True):
        if not other.equals(schema):
            raise ValueError(f"the columns of {file_path} are not those of {paths[0]}: leave files of other tables out")
    files = tuple((file_path, groups) for file_path, (groups, _, _) in zip(paths, footers, strict=True))
    return ParquetFiles(filesystem, files, schema, max(id_bytes for _, _, id_bytes in footers))


def _group_rows(file: Any) -> tuple[int, ...]:
    """Return the number of rows of every row group; raise ``ValueError`` for fewer than none."""
    rows = tuple(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))
    if min(rows, default=0) < 0:
        raise ValueError(f"a row group has {min(rows):,} rows: write the file again")
    return rows


def _id_bytes(metadata: Any) -> int:
    """Return the size of an id, on average in the row group of the longest."""
    number = next((n for n in range(metadata.num_columns) if metadata.schema.column(n).path == "id"), None)
    if number is None:
        return 0
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    return max((group.column(number).total_uncompressed_size // max(1, group.num_rows) for group in groups), default=0)


@contextmanager
def _open_file(filesystem: Any, path: str, columns: int = 1) -> Iterator[Any]:
    buffer = _BUFFER if filesystem.type_name == "local" else max(_BUFFER, _REMOTE_BUFFER // columns)
    with filesystem.open_input_file(path) as source:
        try:
            file = pyarrow(".parquet").ParquetFile(source, pre_buffer=False, buffer_size=buffer)
        except ValueError as error:
            raise ValueError(f"{path} is no whole parquet file ({error}): write it again") from error
        with file:
            yield file


def label_column(schema: Any) -> str | None:
    """Return the first column of integers with "label" in its name; None where there is none."""
    types = pyarrow(".types")
    labels = [field.name for field in schema if "label" in field.name.lower() and types.is_integer(field.type)]
    return labels[0] if labels else None


def table_ids(table: Any, first: int) -> NDArray[Any]:
    """Return the column ``id`` of a table as integers or text; row numbers, from ``first`` on, where it has none.

    Bytes become text.
    """
    if "id" not in table.column_names:
        return np.arange(first, first + table.num_rows)
    arrow = pyarrow()
    types = pyarrow(".types")
    column = table.column("id")
    if column.null_count:
        row = first + int(column.is_null().to_numpy().argmax())
        raise ValueError(f"row {row}, counted from 0, has no id: give every row one, or leave the column out")
    if types.is_integer(column.type):
        return np.asarray(column.to_numpy(), dtype=np.uint64 if column.type == arrow.uint64() else np.int64)
    if types.is_binary(column.type) or types.is_large_binary(column.type) or types.is_fixed_size_binary(column.type):
        return decode_ids(column.to_pylist(), first)
    return as_texts(column.cast(arrow.string()).to_pylist())


def open_embeddings_parquet(
    path: PathOrUri, layers: Sequence[str] | None = None, columns: Sequence[str] | None = None
) -> RowReader:
    """Open embeddings in a list column ``embedding``, or in all floating-point columns in order; ``id`` is optional.

    Features of earlier layers are list columns ``features.NAME``, one for each layer; all are read if ``layers`` is
    None. ``columns`` are the list column, or the columns of numbers, that hold the embeddings, if they are others.
    """
    files = open_parquet(path)
    embedding, single = _embedding_columns(path, files.schema, columns)
    chosen = choose_layers(path, files.schema.names, layers)
    lists = [*([] if embedding is None else [embedding]), *(PREFIX + layer for layer in chosen)]
    widths = _list_widths(path, files, lists)
    wanted = [*lists, *single, *(["id"] if "id" in files.schema.names else [])]

    def read(start: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        for first, table in files.tables(wanted, start, size):
            parts = [_stack_lists(path, name, table.column(name), widths[name], first) for name in lists]
            if single:
                parts.insert(0, np.column_stack([table.column(name).to_numpy() for name in single]))
            yield table_ids(table, first), parts[0] if len(parts) == 1 else np.hstack(parts)

    return RowReader(
        path,
        files.count,
        read,
        starts=files.starts,
        width=len(single) if embedding is None else widths[embedding],
        layers=tuple((layer, widths[PREFIX + layer]) for layer in chosen),
        columns=tuple(single) if embedding is None else (embedding,),
        id_bytes=files.id_bytes,
    )


def _embedding_columns(path: PathOrUri, schema: Any, columns: Sequence[str] | None) -> tuple[str | None, list[str]]:
    """Return the list column of embeddings, or None and the single columns that are their features."""
    fields = {field.name: field.type for field in schema if field.name != "id" and not field.name.startswith(PREFIX)}
    lists = [name for name, kind in fields.items() if _is_list(kind)]
    if columns:
        numbers = [name for name, kind in fields.items() if _is_number(kind)]
        chosen = choose_columns(path, [*lists, *numbers], columns)
        if len(chosen) == 1 and chosen[0] in lists:
            return chosen[0], []
        of_lists = [name for name in chosen if name in lists]
        if of_lists:
            raise ValueError(
                f"--column {','.join(columns)} chooses {len(chosen)} columns of {path}, and {of_lists[0]!r} holds "
                "lists: choose one column of lists, or columns of numbers"
            )
        return None, chosen
    if "embedding" in fields:
        return "embedding", []
    single = [name for name, kind in fields.items() if pyarrow(".types").is_floating(kind)]
    if not single:
        names = ", ".join(f"{field.name} ({field.type})" for field in schema)
        fix = f": choose one with --column {lists[0]}" if lists else ""
        raise ValueError(f"{path} has neither a list column 'embedding' nor floating-point columns, only {names}{fix}")
    return None, single


def _is_list(kind: Any) -> bool:
    types = pyarrow(".types")
    return bool(types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind))


def _is_number(kind: Any) -> bool:
    types = pyarrow(".types")
    return bool(types.is_floating(kind) or types.is_integer(kind))


def _list_widths(path: PathOrUri, files: ParquetFiles, columns: list[str]) -> dict[str, int]:
    """Return the lengths of the lists in the first row; 0 without rows."""
    for name in columns:
        kind = files.schema.field(name).type
        if not _is_list(kind) or not _is_number(kind.value_type):
            raise ValueError(f"{name!r} in {path} is {kind}: expected a list of numbers in every row")
    table = next((table for _, table in files.tables(columns, 0, 1)), None) if columns else None
    return {name: 0 if table is None else len(table.column(name)[0].as_py() or ()) for name in columns}


def _stack_lists(path: PathOrUri, name: str, column: Any, width: int, first: int) -> NDArray[Any]:
    """Return the lists of a column as the rows of a matrix."""
    compute = pyarrow(".compute")
    lengths = compute.fill_null(compute.list_value_length(column), 0).to_numpy()
    is_odd = lengths != width
    if is_odd.any():
        row = int(is_odd.argmax())
        where = f" in {name!r}" if name.startswith(PREFIX) else ""
        raise ValueError(
            f"row {first + row} of {path}, counted from 0, has {lengths[row]} features{where} where row 0 has {width}"
        )
    return np.asarray(compute.list_flatten(column).to_numpy()).reshape(len(column), width)
