"""``pnml demo``: the method on a small trained network and real images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pnml.backend.extras import require
from pnml.backend.files import check_writable
from pnml.cli._app import Facts
from pnml.cli._words import threshold_facts


def demo(
    out: Annotated[Path, typer.Option(help="The folder for the report.", file_okay=False)] = Path("demo"),
) -> Facts:
    """Compare the regret with the baseline on a small network, CIFAR-10 images and images of other kinds.

    The network, the detector and the CIFAR-10 images are part of the package. The other images are part of scikit-learn
    and, if installed, of scikit-image. Nothing is downloaded. Prints a table and writes a report for the browser.

    Example: `pnml demo`

    Example: `pnml demo --out first-look`
    """
    for module in ("torch", "PIL", "sklearn"):
        require(module, extra="torch,sklearn", what="pnml demo")
    from pnml.demo import as_report, as_table, compare, run, text
    from pnml.report import write_report

    check_writable(out / "report.html")
    result = run()
    comparison = compare(result)
    typer.echo(text.introduction(result))
    Console(width=80).print(as_table(comparison))
    paragraphs = (text.missing_textures(), text.decision(result), text.catches(result), text.misses(result))
    typer.echo("\n\n".join(filter(None, paragraphs)) + "\n")
    path = write_report(as_report(result), out / "report.html")
    typer.echo(f"Open the report in a browser: {path}")
    return {
        "report": path,
        "threshold": threshold_facts(result.threshold),
        "sets": {name: pair._asdict() for name, pair in comparison.items()},
    }
