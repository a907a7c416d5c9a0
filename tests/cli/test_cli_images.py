"""fit, calibrate and score on images in folders and in parquet files."""

from __future__ import annotations

import io
import shlex
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from pnml import Detector, guard
from pnml.io.preparation import Preparation

from .cli_files import (
    MEAN,
    MODEL,
    PREPARED,
    SIDE,
    STD,
    fails,
    fitted_on_images,
    network,
    pixels_of,
    prepared,
    run,
    stop_after,
    succeeds,
    table_of,
)

if TYPE_CHECKING:
    from pathlib import Path


def write_parquet(path: Path, pictures: list[bytes], *, struct: bool, ids: list[str] | None = None) -> None:
    column: list[Any] = [{"bytes": content, "path": None} for content in pictures] if struct else [*pictures]
    pq.write_table(pa.table({"image": column} | ({"id": ids} if ids else {})), path, row_group_size=6)


def test_fit_calibrate_and_score_agree_with_the_guard(folder: Path) -> None:
    path = fitted_on_images(folder)
    guarded = guard(network()).fit([prepared(pixels_of(folder / "train"))], progress=False)
    expected = guarded.fitted()
    np.testing.assert_allclose(Detector.load(path).spectrum, expected.spectrum, rtol=1e-5, atol=1e-7)
    succeeds("calibrate", path, *MODEL, "--images", "held", *PREPARED, "--false-alarm-rate", "0.1")
    threshold = guarded.calibrate([prepared(pixels_of(folder / "held"))], false_alarm_rate=0.1, progress=False)
    found = Detector.load(path)
    assert found.threshold is not None
    assert found.threshold.value == pytest.approx(threshold.value, rel=1e-3)
    succeeds("score", path, *MODEL, "--images", "new", *PREPARED, "--batch-size", "8", "--out", "scores.csv")
    table = table_of(folder / "scores.csv")
    result = guarded(prepared(pixels_of(folder / "new")))
    assert table["id"] == [f"{number:04d}.png" for number in range(20)]
    assert table["prediction"] == result.prediction.tolist()
    np.testing.assert_allclose(table["probability"], result.probabilities.max(dim=1).values, rtol=1e-4)
    np.testing.assert_allclose(table["regret"], result.regret, rtol=1e-3)


def test_fit_ends_with_the_next_command_which_runs(folder: Path) -> None:
    said = succeeds("fit", *MODEL, "--images", "train", *PREPARED, "--out", "of images.safetensors")
    command = shlex.split(said.splitlines()[-1].partition("set its threshold: ")[2])
    assert command == ["pnml", "calibrate", "of images.safetensors", "--images", "HELD_OUT", *MODEL]
    succeeds(*["held" if word == "HELD_OUT" else word for word in command[1:]])


@pytest.mark.parametrize("struct", [True, False])
def test_parquet_of_images_gives_the_scores_of_the_folder(struct: bool, folder: Path) -> None:  # noqa: FBT001
    path = fitted_on_images(folder)
    words = ("score", path, *MODEL, *PREPARED, "--batch-size", "8")
    succeeds(*words, "--images", "new", "--out", "folder.csv")
    names = sorted(file.name for file in (folder / "new").iterdir())
    pictures = [(folder / "new" / name).read_bytes() for name in names]
    write_parquet(folder / "new.parquet", pictures, struct=struct, ids=names)
    succeeds(*words, "--images", "new.parquet", "--out", "parquet.csv")
    assert table_of(folder / "parquet.csv") == table_of(folder / "folder.csv")
    write_parquet(folder / "new.parquet", pictures, struct=struct)
    succeeds(*words, "--images", "new.parquet", "--out", "numbered.csv")
    assert table_of(folder / "numbered.csv")["id"] == list(range(20))


def spoil(folder: Path, *numbers: int) -> list[str]:
    for number in numbers:
        (folder / f"{number:04d}.png").write_bytes(b"no picture")
    return [f"{number:04d}.png" for number in numbers]


def test_images_that_do_not_decode_are_skipped_and_listed(folder: Path) -> None:
    path = fitted_on_images(folder)
    bad = spoil(folder / "new", 0, 1, 2, 3, 9)  # the first batch of four has no picture left
    words = ("score", path, *MODEL, *PREPARED, "--images", "new", "--batch-size", "4", "--out", "scores.csv")
    result = run(*words)
    assert result.exit_code == 0
    assert "5 of 20 images do not decode and were skipped" in result.stderr
    assert all(name in result.stderr for name in bad)
    assert "scored 15 rows" in result.stdout
    assert table_of(folder / "scores.csv")["id"] == [
        f"{number:04d}.png" for number in range(20) if number not in {0, 1, 2, 3, 9}
    ]
    assert "0000.png does not decode" in fails(*words, "--strict")
    for command in (["fit", "--out", "other.safetensors"], ["calibrate", path]):
        spoil(folder / "held", 3)
        said = run(*command, *MODEL, *PREPARED, "--images", "held")
        assert said.exit_code == 0, said.output
        assert "1 of 50 images do not decode and were skipped:\n  0003.png" in said.stderr


@pytest.mark.parametrize("change", ["--strict"])
def test_run_is_not_resumed_with_other_options(change: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("score", fitted_on_images(folder), *MODEL, "--images", "new", "--batch-size", "1", "--out", "scores.csv")
    with monkeypatch.context() as patch:
        stop_after(1, patch, OSError("power failure"))
        fails(*words)
    assert "belongs to another run" in fails(*words, change)


def test_empty_parquet_is_refused(folder: Path) -> None:
    pq.write_table(pa.table({"image": pa.array([], pa.binary())}), folder / "none.parquet")
    words = ("fit", *MODEL, "--images", "none.parquet", "--out", "other.safetensors")
    assert "none.parquet is empty: no images to read" in fails(*words)


def test_input_without_a_decodable_image_is_refused(folder: Path) -> None:
    path = fitted_on_images(folder)
    spoil(folder / "new", *range(20))
    for words in (
        ["fit", "--out", "other.safetensors"],
        ["calibrate", path],
        ["score", path, "--out", "scores.parquet"],
        ["score", path, "--out", "scores.csv"],
    ):
        assert "none of the 20 images of new decodes" in fails(*words, *MODEL, *PREPARED, "--images", "new")
    assert not (folder / "scores.parquet").exists()
    assert not (folder / "other.safetensors").exists()


def test_images_are_resized_as_pillow_resizes(folder: Path) -> None:
    big = Image.fromarray(np.random.default_rng(3).integers(0, 256, (9, 7, 3), dtype=np.uint8))
    stream = io.BytesIO()
    big.save(stream, "PNG")
    preparation = Preparation(SIDE, MEAN, STD)
    (image,) = preparation.decode([stream.getvalue()], strict=True)
    assert image is not None
    expected = np.asarray(big.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    torch.testing.assert_close(preparation.batch([image]), prepared(expected[None]))


def test_images_of_different_sizes_require_size(folder: Path) -> None:
    Image.new("L", (6, 5)).save(folder / "new" / "odd.png")
    path = fitted_on_images(folder)
    words = ("score", path, *MODEL, "--images", "new", "--out", "scores.csv")
    assert "expected images of one shape, got (3, 4, 4) and (3, 5, 6): give --size" in fails(*words)
    succeeds(*words, "--size", SIDE, "--restart")
