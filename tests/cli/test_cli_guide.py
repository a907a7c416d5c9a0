"""Every snippet of the guides runs as a script in an empty folder, and prints what the guide shows, up to numbers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python|bash|sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHIM = '#!/bin/sh\nexec {python} -m pnml "$@"\n'


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A path on which ``pnml`` is this package, and ``pip`` and ``make`` do nothing."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in {"pnml": SHIM.format(python=sys.executable), "pip": "#!/bin/sh\n", "make": "#!/bin/sh\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "80"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "at_least"),
    [
        ("docs/guides/command-line.md", 8),
        ("docs/guides/images.md", 6),
        ("docs/guides/monitoring.md", 4),
        ("docs/guides/own.md", 7),
        ("README.md", 1),
    ],
)
def test_snippets_run_as_scripts(page: str, at_least: int, tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    printed, scripts = "", 0
    for language, text in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if language == "text":
            if page != "README.md":  # its text is not of a command
                assert without_numbers(printed) == without_numbers(text)
        elif language in {"bash", "sh"}:
            scripts += 1
            printed = output_of(["bash", "-euo", "pipefail", "-c", text], folder, environment)
        elif name := re.match(r"# (\w+\.py)\n", text):
            (folder / name[1]).write_text(text, encoding="utf-8")
        elif page != "README.md":  # its Python needs a model of the reader's
            scripts += 1
            (folder / "snippet.py").write_text(text, encoding="utf-8")
            output_of([sys.executable, "snippet.py"], folder, environment)
    assert scripts >= at_least


def output_of(words: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def without_numbers(text: str) -> str:
    text = re.sub("digest [0-9a-f]+|[▁▂▃▄▅▆▇█ ]+$", "#", text, flags=re.MULTILINE)
    text = re.sub(r"\d[\d,.]*(e-?\d+)?|true|false", "#", text)
    return " ".join(text.split())
