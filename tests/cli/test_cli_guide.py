"""Every command of the guides runs and prints what the guide shows, up to the numbers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .cli_files import succeeds

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
BLOCK = re.compile(r"^```(python|bash|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(("guide", "expected_commands"), [("command-line.md", 4), ("images.md", 5)])
def test_guide_shows_what_commands_print(
    guide: str, expected_commands: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    printed, commands = "", 0
    for language, text in BLOCK.findall((GUIDES / guide).read_text(encoding="utf-8")):
        if language == "python":
            if name := re.match(r"# (\w+\.py)\n", text):
                (tmp_path / name[1]).write_text(text, encoding="utf-8")
            exec(text, namespace)  # noqa: S102 - the project's own document
        elif language == "bash":
            commands += 1
            printed = output_of(text)
        else:
            assert without_numbers(printed) == without_numbers(text)
    assert commands == expected_commands


def output_of(command: str) -> str:
    words = command.split()
    if words[0] == "pnml":
        return succeeds(*words[1:])
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def without_numbers(text: str) -> str:
    text = re.sub("digest [0-9a-f]+|[▁▂▃▄▅▆▇█ ]+$", "#", text, flags=re.MULTILINE)
    text = re.sub(r"\d[\d,.]*(e-?\d+)?|true|false", "#", text)
    return " ".join(text.split())
