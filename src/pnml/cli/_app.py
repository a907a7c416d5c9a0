"""How every command ends: text or one JSON object on stdout, an error as one line on stderr, and an exit code.

Commands print text for people, and return the same facts as a mapping. With ``--json`` the text goes to stderr and the
facts to stdout.
"""

from __future__ import annotations

import functools
import inspect
import io
import itertools
import json
import os
import re
import sys
import traceback
from contextlib import ExitStack, redirect_stdout
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from typer.core import TyperCommand, TyperGroup

from pnml.backend.suggest import did_you_mean
from pnml.cli._errors import Interrupted, Noticed, messages, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Facts = dict[str, Any]
"""What a command found and wrote, by name."""

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout; text and progress go to stderr.")
]
TracebackOption = Annotated[
    bool,
    typer.Option(
        "--traceback",
        help="After an error, print Python's traceback instead of one line.",
        envvar="PNML_TRACEBACK",
        show_envvar=True,
    ),
]

# The exit codes.
DONE = 0
REFUSED = 1
USAGE = 2
NOTICED = 3
INTERRUPTED = 130

_EXAMPLE = re.compile(r"^Example: `(?P<line>[^`]+)`\n*", re.MULTILINE)
_KEPT = ("--head", "--head-layer", "--layers", "--embedding-scale")  # by a detector

# The class of errors in options and arguments: of click, or of the copy of click in newer releases of typer.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def common_options(command: Callable[..., Facts]) -> Callable[..., Facts]:
    """Return a command with the options that all commands have; ``App`` acts on them."""
    signature = inspect.signature(command, eval_str=True)
    parameters = {"json": JsonOption, "traceback": TracebackOption}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in parameters.items()
    ]

    @functools.wraps(command)
    def with_options(*args: Any, json: bool, traceback: bool, **kwargs: Any) -> Facts:  # noqa: ARG001
        return command(*args, **kwargs)

    whole = signature.replace(parameters=[*signature.parameters.values(), *added])
    with_options.__signature__ = whole  # type: ignore[attr-defined]
    with_options.__annotations__ = {name: one.annotation for name, one in whole.parameters.items()}
    return with_options


class Command(TyperCommand):
    """A command whose help ends with its examples, which are not wrapped, so that each is copied as one line."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, and the examples below it."""
        whole = self.help or ""
        self.help = _EXAMPLE.sub("", whole)
        try:
            super().format_help(ctx, formatter)
        finally:
            self.help = whole
        for example in _EXAMPLE.finditer(whole):
            typer.echo(f" Example: {' '.join(example['line'].split())}")


class App(TyperGroup):
    """A group of commands."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run a command and exit: 0 done, 1 refused, 2 wrong usage, 3 done and an alarm, 130 after Ctrl-C."""
        words = sys.argv[1:] if args is None else list(args)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # for terminals that lack a character
        facts: Facts | None = None
        code = DONE
        with ExitStack() as stack:
            if "--json" in words:
                stack.enter_context(redirect_stdout(sys.stderr))
            warned = stack.enter_context(messages())
            try:
                result = super().main(args, *rest, **{**extra, "standalone_mode": False})
            except Noticed as notice:
                facts = notice.facts
                code = NOTICED
            except Exception as error:  # noqa: BLE001
                message, code = _explain(error, words)
                _close_generators(error)
                facts = {"error": message, **getattr(error, "facts", {})}
                _print(error, message, with_traceback="--traceback" in words or _environment_says_yes())
            else:
                if isinstance(result, int):  # the code of typer.Exit, as after --help
                    code = result
                else:
                    facts = result
        if "--json" in words and facts is not None:
            typer.echo(as_json({**facts, "warnings": warned}))
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was chosen, and name what is kept after Ctrl-C."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("no file was left half-written; run the command again to start over") from None


def as_json(facts: Facts) -> str:
    """Return facts as JSON: paths as text, and numbers that are not finite as null.

    >>> from pathlib import PurePosixPath
    >>> as_json({"out": PurePosixPath("a/b.csv"), "threshold": np.float64("inf"), "rows": np.arange(2)})
    '{"out": "a/b.csv", "threshold": null, "rows": [0, 1]}'
    """
    finite = json.loads(json.dumps(facts, default=_plain), parse_constant=lambda _: None)
    return json.dumps(finite)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def _environment_says_yes() -> bool:
    return os.getenv("PNML_TRACEBACK", "").lower() in {"1", "true", "t", "yes", "y", "on"}


def _explain(error: Exception, words: Sequence[str]) -> tuple[str, int]:
    """Return an error as text, and the exit code."""
    if isinstance(error, _UsageError):
        message = _kept_by_detector(error) or (
            error.format_message().replace("Value error, ", "") + _nearest_command(error)  # type: ignore[attr-defined]
        )
        given = _given_value(error, words)
        is_named = given is None or given in message or repr(given) in message
        return message if is_named else f"{message}, got {given!r}", USAGE
    if isinstance(error, Interrupted):
        return f"interrupted: {error}", INTERRUPTED
    return one_line(error, _files(words)), REFUSED


def _nearest_command(error: Exception) -> str:
    """Return the command that was probably meant, where there is none of a name and the library does not say so."""
    text = str(error)
    commands = getattr(getattr(getattr(error, "ctx", None), "command", None), "commands", {})
    if not commands or not text.startswith("No such command") or "Did you mean" in text:
        return ""
    return did_you_mean(text.partition("'")[2].partition("'")[0], commands)


def _kept_by_detector(error: Exception) -> str:
    """Return what to do about an option of the fit that is given to a command which takes a detector."""
    name = getattr(error, "option_name", None)
    command = getattr(getattr(error, "ctx", None), "info_name", None)
    if name not in _KEPT or command not in {"calibrate", "score", "inspect", "export"}:
        return ""
    return f"No such option: {name}: it goes with pnml fit, and the detector keeps it"


def _files(words: Sequence[str]) -> list[str]:
    """Return the words that are files."""
    return [word for word in words if os.path.isfile(word)]  # noqa: PTH113 - a Path raises for words that are no path


def _given_value(error: Exception, words: Sequence[str]) -> str | None:
    """Return the value of the option that an error is about, where the words hold one."""
    option = getattr(error, "param", None)
    if not isinstance(error, typer.BadParameter) or option is None:
        return None
    following = (value for word, value in itertools.pairwise(words) if word in option.opts)
    joined = (word.partition("=")[2] for word in words if word.partition("=")[0] in option.opts and "=" in word)
    return next(itertools.chain(following, joined), None)


def _close_generators(error: BaseException | None) -> None:
    """Let go of what the failed calls held, so that a progress bar among it ends before the message, not after it."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def _print(error: Exception, message: str, *, with_traceback: bool) -> None:
    if with_traceback:
        typer.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    elif isinstance(error, Interrupted):
        typer.echo(message, err=True)
    elif message:  # empty if the error was to print the help
        typer.secho(f"error: {message}", fg=typer.colors.RED, err=True)
        if (context := getattr(error, "ctx", None)) is not None:
            typer.echo(f"see: {context.command_path} --help", err=True)
