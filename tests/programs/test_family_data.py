"""Test how the programs of the families read their data, on made-up files."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from scipy.io import wavfile

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    return import_module(f"studies.families.{request.param}")


@pytest.mark.parametrize("program", ["audio"], indirect=True)
def test_a_tone_is_in_its_band_of_the_spectrogram(program: Any, tmp_path: Path) -> None:
    time = np.arange(44_100) / 44_100
    wavfile.write(tmp_path / "tone.wav", 44_100, (8000 * np.sin(2 * np.pi * 1000 * time)).astype(np.int16))
    sound = program.read(tmp_path / "tone.wav")
    assert len(sound) == program.RATE
    spectrogram = program.spectrogram(sound)
    assert spectrogram.shape == (1, program.BANDS, program.FRAMES)
    corners = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 4000 / 700), program.BANDS + 2) / 2595) - 1)
    band = int(spectrogram[0].mean(axis=1).argmax())
    assert corners[band] < 1000 < corners[band + 2]


INTENTS = {"card": "where is my card", "fee": "why this fee please", "pin": "i forgot my secret pin", "loan": "a loan"}


def save_tiny_bert(folder: Path) -> None:
    """Write a tokenizer of words and a small BERT with random weights."""
    transformers: Any = import_module("transformers")
    tokenizers: Any = import_module("tokenizers")
    words = sorted({word for text in INTENTS.values() for word in text.split()} | {str(n) for n in range(9)})
    numbers = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *words])}
    splitter = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="[UNK]"))  # noqa: S106
    splitter.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=splitter, **special).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(numbers),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        initializer_range=0.3,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["text_fine_tuned"], indirect=True)
def test_a_fine_tuned_classifier_becomes_a_task_with_the_layers_and_the_regrets_of_its_guard(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{words} {'1 2 3 4 5 6 7 8'[: 2 * n]},{name}" for name, words in INTENTS.items() for n in range(8)]
    for part in ("train", "test"):
        (tmp_path / f"{part}.csv").write_text("\n".join(["text,category", *lines, *lines]), encoding="utf-8")
    save_tiny_bert(tmp_path / "model")
    monkeypatch.setattr(program, "weights", lambda: tmp_path / "model")
    monkeypatch.setattr(import_module("studies.families.text"), "LEFT_OUT", 1)
    monkeypatch.setattr(program, "COMPARED", 40)
    monkeypatch.setattr(program, "train", partial(program.train, epochs=2))
    compared: list[tuple[Any, ...]] = []

    def check(*args: Any) -> None:
        check_guard(*args)
        compared.append(args)

    check_guard = program.check_guard
    monkeypatch.setattr(program, "check_guard", check)
    task = program.make(tmp_path, 0)
    assert task.head.out_features == 3
    assert len(task.train.embeddings) == len(task.test.embeddings) == 48
    assert {name: len(part.embeddings) for name, part in task.oods.items()} == {
        "near: left-out intents": 16,
        "far: code": 500,
    }
    assert sorted(set(task.train.labels.tolist())) == [0, 1, 2]
    ((guard, _, part, inputs),) = compared
    assert guard.watched == task.layers
    assert any((batch["attention_mask"] == 0).any() for batch in inputs)  # padding was among it
    with pytest.raises(AssertionError, match="not close"):  # the regrets of other questions
        check_guard(guard, task, part.of(np.arange(40)[::-1].copy()), inputs)
