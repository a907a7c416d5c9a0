from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from pnml_bench.cli.data import data_app
from pnml_bench.data import SETS
from pnml_bench.data.fetch import fetch as real_fetch

from .layouts import make_cifar10, make_odin, make_svhn, make_tiny_imagenet

if TYPE_CHECKING:
    from pathlib import Path

    from pnml_bench.data.source import Source


@pytest.fixture(autouse=True)
def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(data_app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def row(output: str, *cells: str) -> str:
    (found,) = [line for line in output.splitlines() if all(cell in line.split() for cell in cells)]
    return found


def entry(output: str, name: str) -> str:
    """Return the lines of a set in the list."""
    lines = output.splitlines()
    (start,) = [number for number, line in enumerate(lines) if line.startswith(f"{name}: ")]
    end = next(number for number in range(start + 1, len(lines)) if not lines[number].startswith("  "))
    return "\n".join(lines[start:end])


def as_published(name: str, root: Path, n: int) -> Source:
    """Return the set as if the generated files were the published ones."""
    source = SETS[name]
    best = source.layouts[0]
    md5 = {
        file: hashlib.md5((root / best.folder / file).read_bytes(), usedforsecurity=False).hexdigest()
        for file in best.md5
    }
    counts = {split: n * len(best.required[split]) for split in source.counts}
    return replace(source, counts=counts, layouts=(replace(best, md5=md5), *source.layouts[1:]))


def test_list_shows_location_and_how_to_get(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_cifar10(tmp_path, 2)
    make_odin(tmp_path, 2)
    make_svhn(tmp_path, 2)
    (tmp_path / "svhn" / "train_32x32.mat").unlink()
    monkeypatch.setenv("PNML_DATA", str(tmp_path))
    code, output = run("list")
    assert code == 0
    assert str(tmp_path / "cifar-10-batches-py") in entry(output, "cifar10")
    assert "50,000 train, 10,000 test" in entry(output, "cifar10")
    assert "fetch" not in entry(output, "cifar10")
    assert "absent" in entry(output, "cifar100")
    assert "pnml data fetch cifar100" in entry(output, "cifar100")
    assert f"{tmp_path / 'svhn'} (train absent)" in entry(output, "svhn")
    assert "pnml data fetch svhn" in entry(output, "svhn")
    assert str(tmp_path / "iSUN") in entry(output, "isun")
    assert "generated when loaded" in entry(output, "uniform")
    assert str(cache / "data") in output


def test_list_as_json(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_svhn(tmp_path, 2)
    (tmp_path / "svhn" / "train_32x32.mat").unlink()
    monkeypatch.setenv("PNML_DATA", str(tmp_path))
    found = json.loads(CliRunner().invoke(data_app, ["list", "--json"]).stdout)
    assert found["searched"] == [str(tmp_path), str(cache / "data")]
    sets = {one["name"]: one for one in found["sets"]}
    assert set(sets) == set(SETS)
    svhn = sets["svhn"]
    assert (svhn["folders"], svhn["absent"]) == ([str(tmp_path / "svhn")], ["train"])
    assert svhn["images"] == {"train": 73257, "test": 26032}


def test_fetch_prints_outcome_of_each_set(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(source: Source) -> Path | None:
        if source.name == "svhn":
            raise ConnectionError("could not download svhn")
        return real_fetch(source) if source.generate else cache / "data" / source.name

    monkeypatch.setattr("pnml_bench.cli.data.fetch", fetch)
    code, output = run("fetch", "cifar10", "uniform")
    assert code == 0
    assert f"cifar10: ready in {cache / 'data' / 'cifar10'}\n" in output
    assert "uniform: generated when loaded, nothing to fetch" in output
    code, output = run("fetch", "svhn", "cifar10")
    assert code == 1
    assert "svhn: failed. could not download svhn" in output
    assert "cifar10: ready" in output
    assert "error: 1 of 2 image sets could not be fetched: svhn" in output
    found = json.loads(CliRunner().invoke(data_app, ["fetch", "svhn", "cifar10", "--json"]).stdout)
    assert found["error"] == "1 of 2 image sets could not be fetched: svhn"
    assert [(one["name"], one["error"]) for one in found["sets"]] == [
        ("svhn", "could not download svhn"),
        ("cifar10", None),
    ]


def test_unknown_name_exits_with_2(cache: Path) -> None:
    for command in ("fetch", "verify"):
        code, output = run(command, "cifar11")
        assert code == 2
        assert "unknown image set 'cifar11': expected one of cifar10, cifar100" in output


def test_verify_accepts_published_files(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_cifar10(tmp_path, 3)
    monkeypatch.setenv("PNML_DATA", str(tmp_path))
    monkeypatch.setitem(SETS, "cifar10", as_published("cifar10", tmp_path, 3))
    code, output = run("verify")
    assert code == 0
    for split, count in (("train", "15"), ("test", "3")):
        assert "as published" in row(output, "cifar10", split, count)
        assert "compared" in row(output, "cifar10", split)
    assert "absent" in row(output, "svhn", "train")
    assert "generated when loaded" in row(output, "gaussian")
    assert run("verify", "cifar10", "uniform")[0] == 0
    assert run("verify", "svhn")[0] == 1


def test_verify_reports_changed_files(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_cifar10(tmp_path, 3)
    monkeypatch.setenv("PNML_DATA", str(tmp_path))
    monkeypatch.setitem(SETS, "cifar10", as_published("cifar10", tmp_path, 3))
    path = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    code, output = run("verify", "cifar10")
    assert code == 1
    assert "the md5 of data_batch_3 differs from the published file" in row(output, "cifar10", "train")
    assert "as published" in row(output, "cifar10", "test")


def test_verify_counts_images_without_checksum(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_odin(tmp_path, 2)
    make_tiny_imagenet(tmp_path / "tiny", 2)
    monkeypatch.setenv("PNML_DATA", str(tmp_path))
    code, output = run("verify", "isun")
    assert code == 1
    assert "expected 8,925 images, found 2" in row(output, "isun", "test")
    assert "unknown" in row(output, "isun", "test")
    monkeypatch.setitem(SETS, "isun", replace(SETS["isun"], counts={"test": 2}))
    code, output = run("verify", "isun")
    assert code == 0
    assert "expected number of images" in row(output, "isun", "test")
    monkeypatch.setenv("PNML_DATA", str(tmp_path / "tiny"))
    monkeypatch.setitem(SETS, "tinyimagenet_crop", replace(SETS["tinyimagenet_crop"], counts={"test": 2}))
    code, output = run("verify", "tinyimagenet_crop")
    assert code == 0
    assert "expected number of images; cropped from" in row(output, "tinyimagenet_crop", "test")
    assert "tiny-imagenet-200 (instead of Imagenet)" in entry(run("list")[1], "tinyimagenet_crop")
