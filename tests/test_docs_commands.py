"""Commands in the documents exist with the options they are given, and the files that documents name are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from pnml.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
OTHER_PROGRAMS = {"cat", "cd", "export", "git", "head", "torchrun"}

_SHELL = re.compile(r"^```(?:bash|sh)\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_HEREDOC = re.compile(r"<<'(\w+)'\n.*?^\1$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```.*?^```\s*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
_SOURCE_PATH = re.compile(r"`((?:src|tests|studies|docs|results)/[\w./-]+\.\w+)`")


def shell_commands(text: str) -> list[list[str]]:
    """Return the words of every command in fenced shell blocks, and of inline code that starts with ``pnml``."""
    blocks = [_HEREDOC.sub("", block).replace("\\\n", " ") for block in _SHELL.findall(text)]
    lines = [part for block in blocks for line in block.splitlines() for part in line.split("&&")]
    lines += re.findall(r"`(pnml [^`]+)`", text)
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def check_command(words: list[str]) -> None:
    """Raise ValueError for a command that cannot be run as it is written."""
    program, *rest = words
    if program == "pnml":
        check_pnml(typer.main.get_command(app), rest)
    elif program == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        if unknown := set(rest) - set(targets):
            raise ValueError(f"expected targets of the Makefile ({', '.join(targets)}), got {unknown}")
    elif program == "pip":
        declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        for extra in re.findall(r"(?:pnml|\.)\[(.*?)\]", " ".join(rest)):
            if unknown := {name for name in extra.split(",") if f"\n{name} = [" not in declared}:
                raise ValueError(f"expected extras of pyproject.toml, got {unknown}")
    elif program == "python":
        path = f"{rest[1].replace('.', '/')}.py" if rest[0] == "-m" else rest[0]
        if not (ROOT / path).is_file():
            raise ValueError(f"expected a program of the repository, got {path!r}")
    elif program not in OTHER_PROGRAMS:
        raise ValueError(f"expected pnml, make, pip, python or one of {sorted(OTHER_PROGRAMS)}, got {program!r}")


def check_pnml(command: Any, words: list[str]) -> None:
    """Raise ValueError unless ``words`` name a command and options of it."""
    commands = getattr(command, "commands", {})
    if commands and words and not words[0].startswith("-"):
        if words[0] not in commands:
            raise ValueError(f"expected one of {sorted(commands)}, got {words[0]!r}")
        check_pnml(commands[words[0]], words[1:])
        return
    options = {"--help", *(name for parameter in command.params for name in parameter.opts + parameter.secondary_opts)}
    given = {word.partition("=")[0] for word in words if word.startswith("-")}
    if unknown := given - options:
        raise ValueError(f"expected options among {sorted(options)}, got {sorted(unknown)}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    for words in shell_commands(page.read_text(encoding="utf-8")):
        check_command(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_linked_and_named_files_exist(page: Path) -> None:
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    named = [(page.parent, path) for path in _LINK.findall(text)] + [
        (ROOT, path) for path in _SOURCE_PATH.findall(text)
    ]
    assert [path for base, path in named if not (base / path).exists()] == []


@pytest.mark.parametrize(
    "line",
    [
        "pnml fit --embeddings a.npy --head head.npz --no-such-option",
        "pnml fti --embeddings a.npy",
        "pnml figures no-such-figure",
        "pnml --no-such-option",
        "make tests",
        "pip install 'pnml[torch,nothing]'",
        "pip install '.[nothing]'",
        "conda install pnml",
        "python -m studies.nothing",
    ],
)
def test_check_command_refuses(line: str) -> None:
    with pytest.raises(ValueError, match=r"expected .*, got"):
        check_command(shlex.split(line))


def test_shell_commands_are_split_joined_and_freed_of_comments_and_files() -> None:
    block = "cat > a.py <<'EOF'\nimport a\nEOF\npnml fit --head x \\\n  --out y   # why\ncd a && make test\n"
    page = f"```bash\n{block}```\n`pnml demo`\n"
    found = [" ".join(words) for words in shell_commands(page)]
    assert found == ["cat > a.py", "pnml fit --head x --out y", "cd a", "make test", "pnml demo"]
