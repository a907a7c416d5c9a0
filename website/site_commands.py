"""The reference of the commands, from what their ``--help`` is made of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer

from pnml.cli import app

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXAMPLE = re.compile(r"^Examples?: `(?P<line>.+)`$", re.DOTALL)
_NOTES = re.compile(r"  \[(?P<notes>[^\[\]]+)\]$")
COMMON = ("--json", "--traceback", "--help")


def page() -> str:
    """Return the page of all commands, as Markdown."""
    group: Any = typer.main.get_command(app)
    parts = ["# Commands", "The text of `--help`, for reading and for searching.", _prose(group.help)]
    parts += ["Every command has these options:", _table(_records(group, common=True))]
    for name, command in _commands(group):
        parts += [f"## {name}", *_describe(name, command)]
    return "\n\n".join(part for part in parts if part) + "\n"


def names() -> list[str]:
    """Return the full names of all commands, as "pnml fit"."""
    return [name for name, _ in _commands(typer.main.get_command(app))]


def _commands(group: Any, before: str = "pnml") -> Iterator[tuple[str, Any]]:
    """Yield the full name of every command, and the command."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{before} {name}")
        else:
            yield f"{before} {name}", command


def _describe(name: str, command: Any) -> list[str]:
    arguments = [_written(one) for one in command.params if one.param_type_name == "argument"]
    usage = " ".join([name, *arguments, "[OPTIONS]"])
    return [f"```text\n{usage}\n```", _prose(command.help), _table(_records(command, common=False))]


def _written(argument: Any) -> str:
    """Return an argument as one writes it in a command: DETECTOR, SCORES..., [FOLDER]."""
    name = argument.name.upper() + ("..." if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _prose(text: str) -> str:
    """Return the paragraphs of a help text, with its examples in one block of code."""
    paragraphs = [paragraph.replace("\n", " ") for paragraph in text.strip().split("\n\n")]
    examples = [match["line"] for one in paragraphs if (match := _EXAMPLE.match(one))]
    prose = [one for one in paragraphs if not _EXAMPLE.match(one)]
    return "\n\n".join(prose + (["```bash\n" + "\n".join(examples) + "\n```"] if examples else []))


def _records(command: Any, *, common: bool) -> Iterator[tuple[str, str]]:
    """Yield for every argument and option its name, and what it means with its values, default or limits."""
    context = command.make_context(command.name, [], resilient_parsing=True)
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is None or (parameter.opts[0] in COMMON) != common:
            continue
        written, meaning = record
        is_argument = parameter.param_type_name == "argument"
        name = _written(parameter) if is_argument else "`, `".join([*parameter.opts, *parameter.secondary_opts])
        notes = _NOTES.search(meaning)
        values = written.partition(" ")[2].strip("<>")
        told = [one for one in (values if "|" in values else "", notes["notes"] if notes else "") if one]
        yield name, _NOTES.sub("", meaning) + (f" *({'; '.join(told)})*" if told else "")


def _table(records: Iterator[tuple[str, str]]) -> str:
    rows = [f"| `{_cell(name)}` | {_cell(meaning)} |" for name, meaning in records]
    return "\n".join(["| option | meaning |", "|---|---|", *rows]) if rows else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
