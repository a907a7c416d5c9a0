"""``pnml data``: list, download and verify the image sets of the benchmark."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from pnml.bench.data.check import Check, check
from pnml.bench.data.fetch import fetch
from pnml.bench.data.registry import SETS
from pnml.bench.data.source import Source, data_folders

data_app = typer.Typer(help="List, fetch and verify the image sets.", no_args_is_help=True, rich_markup_mode="markdown")


@data_app.command("list")
def list_sets() -> None:
    """List the image sets: what they are, where they were found, how to get them.

    The folders of PNML_DATA are searched, then the cache.

    Example: `PNML_DATA=~/data pnml data list`
    """
    table = Table("name", "description", "images", title="Image sets")
    for header in ("location", "how to get it"):
        table.add_column(header, overflow="fold")
    for source in SETS.values():
        counts = ", ".join(f"{count:,} {split}" for split, count in source.counts.items())
        location, how_to_get = _location(source)
        table.add_row(source.name, source.description, counts, location, how_to_get)
    console = Console()
    console.print(table)
    console.print(f"Searched {escape(', '.join(str(folder) for folder in data_folders()))}")


@data_app.command("fetch")
def fetch_sets(names: Annotated[list[str], typer.Argument(help="Names of sets, as in `pnml data list`.")]) -> None:
    """Download image sets from their publishers, verify and unpack them.

    An interrupted download resumes when the command is run again. PNML_CACHE sets the folder for downloads.

    Example: `pnml data fetch cifar10 svhn isun`
    """
    fetched = [_fetch_one(source) for source in _sources(names)]
    if not all(fetched):
        raise typer.Exit(1)


@data_app.command("verify")
def verify_sets(
    names: Annotated[list[str] | None, typer.Argument(help="Names of sets; all by default.")] = None,
) -> None:
    """Compare image sets with the published ones: number of images and, where known, checksums of the files.

    The exit code is 1 if a set differs, or if one given by name is absent.

    Example: `pnml data verify cifar10 svhn`
    """
    table = Table("name", "split", "images", "checksums", "result", title="Image sets compared with the published ones")
    failed = False
    sources = _sources(names or list(SETS))
    for source in track(sources, description="reading", console=Console(stderr=True), transient=True):
        if source.generate is not None:
            table.add_row(source.name, "test", f"{source.counts['test']:,}", "", "generated when loaded")
            continue
        for result in check(source):
            table.add_row(*_row(result))
            failed |= bool(result.problems) or (result.folder is None and bool(names))
    Console().print(table)
    if failed:
        raise typer.Exit(1)


def _fetch_one(source: Source) -> bool:
    """Fetch a set, print the outcome, and return whether it succeeded."""
    console = Console()
    try:
        folder = fetch(source)
    except (OSError, ValueError) as error:
        console.print(f"[red]{source.name}: failed.[/] {escape(str(error))}")
        return False
    if folder is None:
        console.print(f"[green]{source.name}:[/] generated when loaded, nothing to fetch")
        return True
    unverified = any(part.md5 is None for part in source.layouts[0].downloads)
    warning = " (unverified: no checksum is known)" if unverified else ""
    console.print(f"[green]{source.name}:[/] ready in {escape(str(folder))}{warning}")
    return True


def _sources(names: list[str]) -> list[Source]:
    unknown = [name for name in names if name not in SETS]
    if unknown:
        raise typer.BadParameter(f"unknown image set {unknown[0]!r}: expected one of {', '.join(SETS)}")
    return [SETS[name] for name in names]


def _location(source: Source) -> tuple[str, str]:
    """Return where a set is and, unless it is complete, how to get it."""
    if source.generate is not None:
        return "generated when loaded", ""
    found = {split: source.find(split) for split in source.counts}
    pairs = [pair for pair in found.values() if pair is not None]
    absent = [split for split, pair in found.items() if pair is None]
    how_to_get = escape(source.how_to_get())
    if not pairs:
        return "absent", how_to_get
    location = escape(", ".join(sorted({str(folder) for _, folder in pairs})))
    preferred = source.layouts[0]
    if any(layout is not preferred for layout, _ in pairs):
        return f"{location} (instead of {preferred.folder})", how_to_get
    return (f"{location} ({', '.join(absent)} absent)", how_to_get) if absent else (location, "")


def _row(result: Check) -> tuple[str, str, str, str, str]:
    if result.folder is None:
        return result.name, result.split, "", "", "absent"
    checksums = "compared" if result.checksummed else "unknown"
    if result.problems:
        verdict = f"[red]{escape('; '.join(result.problems))}[/]"
    elif result.checksummed:
        verdict = "[green]as published[/]"
    else:
        verdict = escape("; ".join(filter(None, ("expected number of images", result.note))))
    return result.name, result.split, f"{result.images:,}", checksums, verdict
