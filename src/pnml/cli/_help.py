"""Help that ends with its examples, each one line, so that they can be copied in a terminal of any width."""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand

_EXAMPLE = re.compile(r"^Example: `(?P<line>[^`]+)`\n*", re.MULTILINE)


class Command(TyperCommand):
    """A command whose examples are not wrapped: what a terminal wraps by itself is copied as one line."""

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
