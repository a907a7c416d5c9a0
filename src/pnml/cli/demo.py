"""``pnml demo``: the method at work on a real network and real pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pnml.backend.extras import require
from pnml.cli._errors import user_errors


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report; made when it is not there.")] = Path("demo"),
) -> None:
    """Show the method at work: a small network, pictures of what it knows, and pictures of what it does not.

    Network, detector and CIFAR-10 images are part of the package, the other pictures of scikit-learn and, where it is
    installed, scikit-image: nothing is downloaded. Prints a table and writes a report to open in a browser.

    Example: `pnml demo`

    Example: `pnml demo --out somewhere`
    """
    with user_errors():
        for module in ("torch", "PIL", "sklearn"):
            require(module, extra="torch,sklearn", what="pnml demo")
        from pnml.demo import as_report, as_table, compare, run, words
        from pnml.report import write_report

        outcome = run()
        typer.echo(words.introduction(outcome))
        Console(width=80).print(as_table(compare(outcome)))
        texts = (words.left_out(), words.decision(outcome), words.examples(outcome))
        typer.echo("\n\n".join(filter(None, texts)) + "\n")
        path = write_report(as_report(outcome), out / "report.html")
    typer.echo(f"Open the report in a browser: {path}")
