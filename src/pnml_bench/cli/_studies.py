"""The results of one study, and word of the other studies in the same folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from pnml_bench.store import load_study, study_names

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pnml_bench.results import Result


def load_chosen(folder: Path, study: str | None) -> list[Result]:
    """Read the results of a study; name the others on stderr where the user did not choose."""
    results = load_study(folder, study)
    name_others(folder, study, results[0].study)
    return results


def name_others(folder: Path, study: str | None, chosen: str, base: Callable[[str], str] = str) -> None:
    """Name the other studies of a folder on stderr, unless the user chose one; ``base`` tells which belong together."""
    others = [name for name in study_names(folder) if base(name) != chosen]
    if study is None and others:
        typer.echo(f"shown is the study {chosen}; --study chooses another: {', '.join(others)}", err=True)
