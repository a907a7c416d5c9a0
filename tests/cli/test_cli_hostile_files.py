"""Whatever a file holds, a command answers with a result or with one line that names the file."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pnml.engines import local
from pnml.metrics import evaluate
from pnml_bench.results import Result, Run, Scores
from pnml_bench.store import ResultStore

from .cli_files import CLASSES, FEATURES, Files, fails, run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = np.random.default_rng(0).normal(size=(40, FEATURES))


def encrypted(content: bytes) -> bytes:
    """Mark every member of an archive as encrypted."""
    changed, place = bytearray(content), content.find(b"PK\x01\x02")
    while place >= 0:
        changed[place + 8] |= 1
        place = content.find(b"PK\x01\x02", place + 1)
    return bytes(changed)


def archive_of(method: int = zipfile.ZIP_STORED, **arrays: Any) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array)
            archive.writestr(f"{name}.npy", member.getvalue())
    return file.getvalue()


def overwritten(content: bytes, place: int, new: bytes) -> bytes:
    return content[:place] + new + content[place + len(new) :]


def huge_npz() -> bytes:
    """Claim more rows than any memory holds."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**15}, {FEATURES}), }}".encode()
    member = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("embedding.npy", member)
    return file.getvalue()


def table_of(names: list[str], *columns: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], names=names), file)
    return file.getvalue()


def ids_of_another_level() -> bytes:
    """Say in the schema that ids are required, where the statistics of their sizes are of optional ones."""
    content = table_of(["embedding", "id"], ROWS.tolist(), [f"row {number}" for number in range(40)])
    optional, required = b"\x25\x02\x18\x02id", b"\x25\x00\x18\x02id"
    assert content.count(optional) == 1
    return content.replace(optional, required)


EMBEDDINGS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "an archive named .npy": ("rows.npy", lambda: archive_of(embedding=ROWS), "rename it to rows.npz"),
    "a password": ("rows.npz", lambda: encrypted(archive_of(embedding=ROWS)), "is encrypted, password required"),
    "a method of compression that nobody has": (
        "rows.npz",
        lambda: archive_of(embedding=ROWS).replace(b"\x14\x00\x00\x00\x00\x00", b"\x14\x00\x00\x00\x63\x00"),
        "NotImplementedError",
    ),
    "damaged bzip2": ("rows.npz", lambda: overwritten(archive_of(12, embedding=ROWS), 60, bytes(99)), "Invalid data"),
    "damaged LZMA": ("rows.npz", lambda: overwritten(archive_of(14, embedding=ROWS), 60, b"\xff" * 99), "Corrupt"),
    "an array without .npy": (
        "rows.npz",
        lambda: archive_of(embedding=ROWS).replace(b"embedding.npy", b"embeddingabcd"),
        "'embeddingabcd', which is no .npy",
    ),
    "more rows than there is memory": ("rows.npz", huge_npz, "embedding"),
    "a header that does not end": (
        "rows.npy",
        lambda: b"\x93NUMPY\x01\x00" + struct.pack("<H", 8) + b"{'a': ((",
        "cannot be read",
    ),
    "two columns of one name": (
        "rows.parquet",
        lambda: table_of(["embedding", "embedding"], ROWS.tolist(), ROWS.tolist()),
        "two columns named 'embedding'",
    ),
    "two columns of ids": (
        "rows.parquet",
        lambda: table_of(["embedding", "id", "id"], ROWS.tolist(), [*range(40)], [*range(40)]),
        "two columns named 'id'",
    ),
    "lists of text": (
        "rows.parquet",
        lambda: table_of(["embedding"], [[str(x) for x in row] for row in ROWS]),
        "expected a list of numbers",
    ),
    "lists of lists": ("rows.parquet", lambda: table_of(["embedding"], [[[1.0]]] * 40), "expected a list of numbers"),
    "ids that are no text": (
        "rows.parquet",
        lambda: table_of(["embedding", "id"], ROWS.tolist(), [b"\xff\xfe"] * 40),
        "",
    ),
    "ids for which pyarrow would end the process": ("rows.parquet", ids_of_another_level, ""),
    "damaged pages": (
        "rows.parquet",
        lambda: overwritten(table_of(["embedding"], ROWS.tolist()), 4, b"\xff" * 64),
        "cannot be read",
    ),
}


@pytest.mark.parametrize("case", EMBEDDINGS)
def test_hostile_embeddings_are_refused_by_name(case: str, files: Files) -> None:
    name, content, message = EMBEDDINGS[case]
    (files / name).write_bytes(content())
    words = ("fit", "--head", files / "head.npz", "--out", files / "out.safetensors")
    said = fails(*words, "--embeddings", files / name)
    assert str(files / name) in said
    assert message in said
    assert not (files / "out.safetensors").exists()


WEIGHT, BIAS = np.ones((CLASSES, FEATURES)), np.zeros(CLASSES)
HEADS: dict[str, tuple[Callable[[], bytes], str]] = {
    "text": (lambda: archive_of(weight=WEIGHT.astype(np.str_), bias=BIAS), "'weight' of"),
    "complex numbers": (lambda: archive_of(weight=WEIGHT, bias=BIAS.astype(complex)), "'bias' of"),
    "a password": (lambda: encrypted(archive_of(weight=WEIGHT, bias=BIAS)), "encrypted"),
    "damaged deflate": (lambda: overwritten(archive_of(8, weight=WEIGHT, bias=BIAS), 60, b"\xff" * 40), "cannot be"),
    "too few biases": (lambda: archive_of(weight=WEIGHT, bias=BIAS[1:]), "one entry per class"),
}


def fit(files: Files) -> list[object]:
    return [
        "fit",
        "--embeddings",
        files / "train.npy",
        "--head",
        files / "head.npz",
        "--out",
        files / "out.safetensors",
    ]


@pytest.mark.parametrize("case", HEADS)
def test_hostile_heads_are_refused_by_name(case: str, files: Files) -> None:
    content, message = HEADS[case]
    (files / "head.npz").write_bytes(content())
    said = fails(*fit(files))
    assert str(files / "head.npz") in said
    assert message in said


def with_metadata(path: Path, **changes: Any) -> None:
    """Write the entries of a state file's metadata anew."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"].update(changes)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])


def info_of(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    info: dict[str, Any] = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["info"])
    return info


@pytest.mark.parametrize("value", [None, "x", {}, 1e308])
def test_hand_made_detectors_are_refused_by_name(value: Any, files: Files) -> None:
    path = files.fitted(calibrated=True)
    whole, info = path.read_bytes(), info_of(path)
    for name in info:
        path.write_bytes(whole)
        with_metadata(path, version="2", info=json.dumps({**info, name: value}))
        result = run("inspect", path)
        assert isinstance(result.exception, SystemExit | None), (name, result.exception)
        assert "unexpected" not in result.stderr, (name, result.stderr)
        assert result.exit_code == 0 or str(path) in " ".join(result.stderr.split()), (name, result.stderr)


@pytest.mark.parametrize("info", ["[]", '"text"', "1", "[" * 100_000, "{"])
def test_detectors_with_other_metadata_are_refused_by_name(info: str, files: Files) -> None:
    path = files.fitted()
    with_metadata(path, info=info)
    assert str(path) in fails("inspect", path)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    scores = Scores(evaluate(rng.normal(size=9), rng.normal(1, size=9)))
    for method in ("baseline", "odin"):
        run_of = Run(command="pnml bench", device="cpu", versions={"numpy": "2"}, date="2026-01-01")
        names = {"model": "resnet-34", "ind": "cifar10", "ood": "svhn", "method": method}
        ResultStore(tmp_path / "results").append(Result(**names, scores=scores, settings={"limit": 9}, run=run_of))  # type: ignore[arg-type]
    return tmp_path / "results"


LINES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a run that is a list": ("runs.jsonl", lambda line: [line]),
    "a run that is text": ("runs.jsonl", str),
    "a run without a name": ("runs.jsonl", lambda line: {}),
    "a run of other entries": ("runs.jsonl", lambda line: {**line, "more": 1}),
    "versions that are a list": ("runs.jsonl", lambda line: {**line, "versions": [1]}),
    "settings that are text": ("settings.jsonl", lambda line: {**line, "values": "text"}),
    "settings without values": ("settings.jsonl", lambda line: {"settings": line["settings"]}),
    "notes about nothing": ("settings.jsonl", lambda line: {**line, "values": {"notes": {"a": "b"}}}),
}


@pytest.mark.parametrize("case", LINES)
def test_hostile_results_of_the_benchmark_are_refused_by_name(case: str, results: Path) -> None:
    name, change = LINES[case]
    line = json.loads((results / name).read_text(encoding="utf-8"))
    (results / name).write_text(json.dumps(change(line)) + "\n", encoding="utf-8")
    out = results.parent / "out"
    said = fails("report", results, "--out", out)
    assert name in said or "cells.csv, row 2" in said
    assert not out.exists()


def test_an_error_of_our_own_names_the_files_and_keeps_its_traceback(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr(local, "fit", broken)
    said = run(*fit(files)).stderr
    assert "unexpected KeyError: 'ours'" in said
    assert str(files / "train.npy") in said
    assert str(files / "head.npz") in said
    assert 'raise KeyError("ours")' in run(*fit(files), "--traceback").stderr
