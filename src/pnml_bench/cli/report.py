"""``pnml report`` of a folder of results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from pnml_bench.cli._shared import name_others

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.report import Report


def report_of_results(
    folder: Path, study: str | None, model: str | None, ind: str | None, method: str | None
) -> Report:
    """Return the report of a study, and say which of its results the charts show."""
    from pnml_bench.report import charted_groups, choose_results, report_of

    results = choose_results(folder, study, model=model, ind=ind, method=method)
    name_others(folder, study, results[0].study)
    groups = charted_groups(results, folder)
    if not groups:
        typer.echo("no scores were kept, so there are tables only: pnml bench --keep-scores keeps them", err=True)
    elif len(groups) > 1:
        typer.echo(f"the charts are of {groups[0]}; for others give", err=True)
        for group in groups[1:]:
            typer.echo(f"  {group}", err=True)
    return report_of(results, folder)
